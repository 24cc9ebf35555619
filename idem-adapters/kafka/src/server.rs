//! The brokers, and how to open their topics.

use std::sync::Arc;

use idem_core::Error;

use crate::config::Config;
use crate::connection;
use crate::options::Options;
use crate::sink::Producer;
use crate::source::Topic;
use crate::wanted::Wanted;

/// A Kafka cluster whose brokers answer and accept the login. Keeps no connection open.
///
/// ```no_run
/// # use idem_core::{Error, Store, Worker};
/// # use idem_kafka::Kafka;
/// # async fn open<S: Store>(store: S) -> Result<(), Error> {
/// let kafka = Kafka::connect("kafka-1:9092,kafka-2:9092").await?;
/// // Each worker joins the consumer group that has the worker's name.
/// let orders = Worker::new("billing-orders", store.clone(), kafka.topic("orders").await?);
/// let payments = Worker::new("billing-payments", store, kafka.topic("payments").await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Kafka {
    config: Arc<Config>,
}

impl Kafka {
    /// Connects to the brokers at these `host:port` addresses, separated by commas. One is enough, since each broker
    /// knows the others.
    ///
    /// # Errors
    /// See [`Options::connect`].
    pub async fn connect(brokers: impl Into<String>) -> Result<Self, Error> {
        Self::options(brokers).connect().await
    }

    /// Returns the options of a connection to these brokers.
    ///
    /// ```no_run
    /// # use idem_kafka::Kafka;
    /// # async fn example(password: String, certificate: Vec<u8>, key: Vec<u8>) -> Result<(), idem_core::Error> {
    /// // SCRAM over TLS, with the CAs of the system.
    /// let scram = Kafka::options("kafka:9093")
    ///     .tls()
    ///     .sasl_plain("billing", password)
    ///     .property("sasl.mechanisms", "SCRAM-SHA-512")
    ///     .connect()
    ///     .await?;
    /// // A client certificate instead of a password.
    /// let mutual = Kafka::options("kafka:9093").tls_identity(certificate, key).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn options(brokers: impl Into<String>) -> Options {
        Options::new(brokers.into())
    }

    /// Returns an existing topic as a source.
    ///
    /// # Errors
    /// Returns an error if the topic does not exist or the user may not see it. The text names the remedy.
    pub async fn topic(&self, name: impl Into<String>) -> Result<Topic, Error> {
        self.look_for(Wanted::one(&name.into())?).await
    }

    /// Returns several existing topics as one source, with one connection and one group. A name that begins with `^` is
    /// a pattern: a [regular expression](https://docs.rs/regex/1/regex/#syntax) that matches topic names, including
    /// those of topics created later. It need not match to the end of the name, unless it ends with `$`. It never
    /// matches names that begin with `__`, which Kafka reserves.
    ///
    /// ```no_run
    /// # async fn example(kafka: idem_kafka::Kafka) -> Result<(), idem_core::Error> {
    /// // `payments`, and one topic for each country: `orders.de`, `orders.fr`, ..
    /// let source = kafka.topics(["payments", r"^orders\.[a-z]{2}$"]).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Returns an error if a named topic does not exist or the user may not see it, if a pattern is invalid, or if no
    /// topic matches. The text names the remedy.
    pub async fn topics<T: Into<String>>(&self, names: impl IntoIterator<Item = T>) -> Result<Topic, Error> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        self.look_for(Wanted::several(&names)?).await
    }

    /// Returns the topics of the cluster as a sink, to which a relay publishes. A message's topic is its destination.
    ///
    /// The producer is idempotent, with `acks=all`: a message is confirmed when all replicas in sync have it, so topics
    /// should have a `min.insync.replicas` of 2 or more. An attempt of the client to send it again makes no copy; one of
    /// the relay, after an error or a crash, does, under the same id.
    ///
    /// | message | Kafka |
    /// |---|---|
    /// | id | header `message-id`, which a [`Topic`] reads: `key = message_id` |
    /// | event type | header `event-type`: `.event_type("event-type")` of the worker |
    /// | content type | header `content-type` |
    /// | key | key of the record, whose partition is the one that Kafka's client in Java would choose; another one with the property `partitioner` |
    /// | headers | headers |
    ///
    /// A record has the time at which it is sent, not the one at which it was staged: a topic would otherwise remove
    /// messages that have waited for longer than its retention.
    ///
    /// | failure | |
    /// |---|---|
    /// | the topic does not exist, or the user may not write to it | the message is refused, and its neighbours are not. That takes 2 seconds (`topic.metadata.propagation.max.ms`), because a new topic may not be known yet |
    /// | larger than `message.max.bytes` (1,000,000; a property), or than the topic takes | the message is refused. A topic refuses a whole batch; its messages are then sent one by one |
    /// | no report within 8 seconds (`message.timeout.ms`) | a failure of the broker; the message is published again. A relay with a longer `publish_timeout` needs a longer one here as well |
    /// | a fatal error of the producer, a login that is refused | a failure of the broker; nothing is confirmed, and a new producer with the present login takes its place |
    ///
    /// One partition that does not answer delays all topics: when a message has timed out in its queue, the idempotent
    /// producer sends nothing more until all messages that are under way are answered, for up to 8 seconds each time.
    ///
    /// A message costs a slot in a batch; there is no waiting for a batch to fill (`linger.ms` is 0). The client has a
    /// thread for each broker. Publishing is cancel safe: a call that is dropped was published or not, and neither fails
    /// nor confirms another.
    ///
    /// The settings are those of [`options`](Self::options), with [`Options::property`]; `acks`, `enable.idempotence` and
    /// others that would break the guarantee are refused. The user needs `Write` on the topics, and before Kafka 2.8
    /// `IdempotentWrite` on the cluster. When the relay starts, only the connection is checked.
    ///
    /// ```no_run
    /// # async fn producer() -> Result<(), idem_core::Error> {
    /// # use idem_kafka::Kafka;
    /// let kafka = Kafka::options("kafka-1:9092").property("compression.type", "lz4").connect().await?;
    /// let events = kafka.producer().cloud_events("/shop/billing");
    /// # let _ = events;
    /// # Ok(()) }
    /// ```
    pub fn producer(&self) -> Producer {
        Producer::new(Arc::clone(&self.config))
    }

    async fn look_for(&self, wanted: Wanted) -> Result<Topic, Error> {
        let wanted = Arc::new(wanted);
        connection::topics(&self.config.current().await?, &wanted).await?;
        Ok(Topic::new(Arc::clone(&self.config), wanted))
    }
}

impl Options {
    /// Connects once, to check that a broker answers and that the login works.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that is unknown, not built in or reserved by idem, and for two logins.
    /// [`Error::Broker`] if no broker answers within 10 seconds, the login is refused, or TLS verification fails. The
    /// texts name the remedy.
    pub async fn connect(self) -> Result<Kafka, Error> {
        let config = self.config()?;
        connection::connect(&config.current().await?).await?;
        Ok(Kafka { config: Arc::new(config) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTINEL: &str = "s3ntinel";

    #[test]
    fn nothing_shows_a_secret() {
        let options = || Kafka::options("h:1").sasl_plain("user", SENTINEL).property("sasl.password", SENTINEL);
        let config = options().config().unwrap();
        let shown =
            [format!("{:?}", options()), format!("{config:?}"), format!("{:?}", Kafka { config: Arc::new(config) })];
        for text in shown {
            assert!(!text.contains(SENTINEL) && text.contains("h:1"), "{text}");
        }
    }
}
