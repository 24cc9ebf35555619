//! A producer of librdkafka, and its end.

use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};

use crate::config::Config;
use crate::connection::Witness;
use crate::error::{Loss, setting};
use crate::property;

/// A producer, and its end.
///
/// An idempotent producer can end with a fatal error, after which it takes nothing. One whose login the brokers have
/// refused would try the same login for ever. Both are replaced.
pub(crate) struct Sender {
    /// `None` only while it is dropped.
    client: Option<FutureProducer<Witness>>,
    witness: Witness,
}

impl Sender {
    /// Creates a producer, which connects as soon as it is used. One that is `single` sends each message in a batch by
    /// itself.
    pub(crate) fn new(config: &Config, single: bool) -> Result<Self, Loss> {
        let witness = Witness::new(config);
        let settings = property::of_producer(&config.client, single);
        let client: FutureProducer<Witness> =
            settings.create_with_context(witness.clone()).map_err(|error| setting(&error))?;
        config.tokens.begin(client.client(), &config.place)?;
        Ok(Self { client: Some(client), witness })
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.witness.has_ended()
    }

    /// Ends it: calls that wait return at once.
    pub(crate) fn end(&self) {
        self.witness.end();
    }

    /// Sends a record and waits for its delivery report. `None` if the producer ends first. If there is no room in its
    /// queue, it waits. Cancel safe; the record is then sent or not.
    pub(crate) async fn send(&self, record: FutureRecord<'_, [u8], [u8]>) -> Option<Result<(), KafkaError>> {
        let client = self.client.as_ref()?;
        let sent = tokio::select! {
            biased;
            sent = client.send(record, rdkafka::util::Timeout::Never) => sent.map(drop).map_err(|(error, _)| error),
            () = self.witness.ended() => return None,
        };
        // The event may come later than the report.
        if sent.is_err() && client.client().fatal_error().is_some() {
            self.end();
        }
        Some(sent)
    }

    /// Returns the reason that the client has last given for an error.
    pub(crate) fn reason(&self) -> String {
        let fatal = self.client.as_ref().and_then(|client| client.client().fatal_error());
        fatal.map_or_else(|| self.witness.said().reason, |(_, reason)| reason)
    }
}

/// It takes half a second, in which it purges its messages, so it happens in a thread of its own.
impl Drop for Sender {
    fn drop(&mut self) {
        let client = self.client.take();
        // Without a thread, it is dropped here.
        let _ = std::thread::Builder::new().name("idem-kafka-end".to_owned()).spawn(move || drop(client));
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientContext;
    use rdkafka::error::RDKafkaErrorCode as Code;

    use super::*;
    use crate::Kafka;

    #[test]
    fn a_producer_ends_with_its_login_and_not_because_of_a_token_or_of_one_broker() {
        let config = Kafka::options("127.0.0.1:1").config().unwrap();
        for (code, reason, ends) in [
            (Code::Authentication, "Failed to acquire SASL OAUTHBEARER token: the vault is sealed", false),
            (Code::SSL, "certificate verify failed", false),
            (Code::Authentication, "wrong password", true),
            (Code::SaslAuthenticationFailed, "wrong password", true),
            (Code::Fatal, "out of order", true),
        ] {
            let sender = Sender::new(&config, false).unwrap();
            sender.witness.error(KafkaError::Global(code), reason);
            assert_eq!(sender.is_live(), !ends, "{code}: {reason}");
        }
    }
}
