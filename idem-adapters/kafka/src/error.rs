//! Error texts. They contain no secrets: they name addresses and settings, never the values of settings.

use idem_core::Error;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::partition::TopicPartition;
use crate::plan::Plan;

/// Why a subscription delivers nothing more. Every later call returns it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Loss {
    /// A configuration error. The text names the remedy.
    Refused(String),
    /// A broker error: the operation that failed, and the client's reason.
    Broker(String, String),
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Refused(text) => Self::Config(text),
            Loss::Broker(what, source) => Self::broker(what, source),
        }
    }
}

/// A connection failed. `reason` is librdkafka's last error text.
pub(crate) fn connecting(place: &str, code: Option<RDKafkaErrorCode>, reason: String) -> Loss {
    use RDKafkaErrorCode as Code;
    let remedy = match code {
        Some(Code::Authentication | Code::SaslAuthenticationFailed) => {
            "check user, password and the SASL mechanism, or what is given to .sasl_credentials(..) or .sasl_oauthbearer(..)"
        }
        // The server's alert in the handshake. If the client rejects the server's certificate, the text differs.
        _ if reason.contains("SSL alert number") => {
            "the server refuses TLS with this client: where it asks for a certificate, give one by \
             .tls_identity(certificate, key) that comes from a CA of the server's and has not expired"
        }
        Some(Code::SSL) => {
            "the server's certificate must be valid for this host name and come from a CA of this system: for a \
             private CA use .tls_ca(pem), and check that the port speaks TLS"
        }
        Some(Code::Resolve) => "the name of the host is not known here",
        _ => {
            "check that the server runs, that the port can be reached from here, and that it is the port of a listener \
             with the same security (plain, TLS, SASL)"
        }
    };
    Loss::Broker(format!("cannot connect to Kafka at {place}: {remedy}"), reason)
}

/// The topic does not exist.
pub(crate) fn no_topic(place: &str, topic: &str) -> Loss {
    Loss::Refused(format!(
        "the topic `{topic}` does not exist at {place}, and idem creates none: create it, for example by \
         `kafka-topics.sh --bootstrap-server {place} --create --topic {topic} --partitions 3`"
    ))
}

/// No topic matches.
pub(crate) fn no_match(place: &str, wanted: &str) -> Loss {
    Loss::Refused(format!(
        "no topic at {place} matches `{wanted}`: create one, check the pattern (it is a regular expression that begins with ^; a \
         dot stands for any character, `\\.` for a dot), and allow the user to describe the topics"
    ))
}

/// The topic was deleted, and another topic was created under its name.
pub(crate) fn recreated(place: &str, topic: &str) -> Loss {
    let what = format!("the topic `{topic}` at {place} was deleted and recreated while idem consumed it");
    Loss::Broker(what, "the worker opens it again, and begins at the first message of the new topic".to_owned())
}

/// The group's offset is outside the partition's range.
pub(crate) fn out_of_range(plan: &Plan, partition: &TopicPartition, offset: Option<i64>, range: &str) -> String {
    let Plan { config, group, .. } = plan;
    let offset = offset.map_or_else(|| "the offset".to_owned(), |offset| format!("offset {offset}"));
    format!(
        "{offset} of {partition}, where the group `{group}` goes on, is out of range: {range}. Either the topic's retention has \
         removed messages before they were handled, or the topic was recreated. idem has skipped nothing. To go on, stop all \
         members of the group and set its offset, for example by \
         `kafka-consumer-groups.sh --bootstrap-server {} --group {group} --topic {}:{} --reset-offsets \
         --to-earliest --execute` (or --to-latest, which skips the messages that are there)",
        config.place, partition.topic, partition.number
    )
}

/// The group's offsets have expired, so that it would skip the messages published since.
pub(crate) fn expired(plan: &Plan) -> Loss {
    let Plan { config, group, known, .. } = plan;
    let topics: Vec<_> = known.keys().map(|topic| &**topic).collect();
    let options: String = topics.iter().map(|topic| format!(" --topic {topic}")).collect();
    Loss::Refused(format!(
        "Start::Latest would skip messages: the group `{group}` has no committed offset in the topic `{}`, but this consumer has \
         handled messages before. Its offsets have expired, or it is another group or another topic. Use Start::Earliest: claims \
         tell which messages were handled before, and natural handlers run again. Or skip the messages that are there, by `kafka-consumer-groups.sh \
         --bootstrap-server {} --group {group}{options} --reset-offsets --to-latest --execute`",
        topics.join("`, `"),
        config.place
    ))
}

/// The client does not report the id of the topic.
pub(crate) fn no_id(place: &str, topic: &str) -> Loss {
    let (_, version) = rdkafka::util::get_rdkafka_version();
    Loss::Refused(format!(
        "the id of the topic `{topic}` at {place} is not known. Without it idem cannot tell a recreated topic from this one, and \
         would skip messages. The brokers must run Kafka 2.8 or later. If they do, librdkafka {version} logs the id in a form \
         that idem does not know: build with rdkafka 0.39, and report this"
    ))
}

/// librdkafka rejected a setting. Its own text may repeat the value, which may be a secret.
pub(crate) fn setting(error: &KafkaError) -> Loss {
    Loss::Refused(match error {
        KafkaError::ClientConfig(_, said, key, _) if said.starts_with("No such") => {
            format!("librdkafka has no setting `{key}`: see its CONFIGURATION.md for the names")
        }
        KafkaError::ClientConfig(_, said, key, _) if said.contains("not supported in this build") => {
            format!("the setting `{key}` needs a part of librdkafka that was not built in: {SSL}")
        }
        KafkaError::ClientConfig(_, _, key, _) => {
            format!("librdkafka refuses the value of `{key}`: see its CONFIGURATION.md for what it may be")
        }
        KafkaError::ClientCreation(said) if said.contains("OpenSSL") => format!("{said}. {SSL}"),
        error => format!("the settings for Kafka do not fit together: {error}"),
    })
}

/// How to enable TLS.
pub(crate) const SSL: &str = "TLS, SCRAM and OAUTHBEARER need OpenSSL, which is linked only with the feature `ssl` of idem-kafka \
                              (`kafka-ssl` of idem-rs)";

/// Errors after which librdkafka retries by itself.
pub(crate) fn passes(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::PollExceeded
            | Code::NoOffset
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::ReplicaNotAvailable
            | Code::NetworkException
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::WaitingForCoordinator
            | Code::IllegalGeneration
            | Code::UnknownMemberId
            | Code::RebalanceInProgress
            | Code::StaleMemberEpoch
            | Code::FencedMemberEpoch
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::KafkaStorageError
            | Code::OffsetNotAvailable
    )
}

/// Errors of a batch that arrived and cannot be read, however often it is fetched.
pub(crate) fn is_unreadable(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::BadMessage | Code::BadCompression | Code::NotImplemented | Code::Underflow | Code::MessageSizeTooLarge
    )
}
