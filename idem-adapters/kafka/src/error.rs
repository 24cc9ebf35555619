//! What is said when Kafka cannot be used. No text holds a secret: they name addresses and settings, never values.

use idem_core::Error;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::partition::TopicPartition;

/// Why nothing more comes. It is said as often as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The cure is in the text.
    Refused(String),
    /// What was tried, and what the client said.
    Broker(String, String),
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Refused(text) => Self::Refused(text),
            Loss::Broker(what, source) => Self::Broker { what, source: source.into() },
        }
    }
}

/// A connection could not be made. `reason` is what librdkafka said last.
pub(crate) fn connecting(place: &str, code: Option<RDKafkaErrorCode>, reason: String) -> Loss {
    use RDKafkaErrorCode as Code;
    let cure = match code {
        Some(Code::Authentication | Code::SaslAuthenticationFailed) => {
            "check user, password and the SASL mechanism, or what is given to .sasl_credentials(..) or .sasl_oauthbearer(..)"
        }
        // What the server says of the handshake. The client says otherwise what it has against the server's certificate.
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
    Loss::Broker(format!("cannot connect to Kafka at {place}: {cure}"), reason)
}

/// The topic is not there.
pub(crate) fn no_topic(place: &str, topic: &str) -> Loss {
    Loss::Refused(format!(
        "the topic `{topic}` does not exist at {place}, and idem makes none: create it, for example by \
         `kafka-topics.sh --bootstrap-server {place} --create --topic {topic} --partitions 3`"
    ))
}

/// No pattern takes a topic.
pub(crate) fn no_match(place: &str, wanted: &str) -> Loss {
    Loss::Refused(format!(
        "no topic at {place} matches `{wanted}`: create one, check the pattern (it is a regular expression that begins with ^, in \
         which a dot stands for any letter and `\\.` for a dot), and allow the user to describe the topics"
    ))
}

/// Another topic has come in its place.
pub(crate) fn made_anew(place: &str, topic: &str) -> Loss {
    let what = format!("the topic `{topic}` at {place} was deleted and made anew while it was consumed");
    Loss::Broker(what, "it is begun at its first message when it is opened again".to_owned())
}

/// The group stands where the partition has nothing.
pub(crate) fn out_of_range(
    place: &str,
    group: &str,
    partition: &TopicPartition,
    offset: Option<i64>,
    range: &str,
) -> String {
    let offset = offset.map_or_else(|| "the offset".to_owned(), |offset| format!("offset {offset}"));
    format!(
        "{offset} of {partition}, where the group `{group}` goes on, is out of range: {range}. Messages in between were removed by the topic's retention before they were handled, or the \
         topic was made anew. Nothing was skipped. To go on, stop all members of the group and tell it where, by \
         `kafka-consumer-groups.sh --bootstrap-server {place} --group {group} --topic {}:{} --reset-offsets \
         --to-earliest --execute` (or --to-latest, which skips what is there)",
        partition.topic, partition.number
    )
}

/// The group has no offsets any more, and would skip what came meanwhile.
pub(crate) fn expired<'a>(place: &str, group: &str, topics: impl Iterator<Item = &'a str>) -> Loss {
    let (mut names, mut options) = (Vec::new(), String::new());
    for topic in topics {
        names.push(format!("`{topic}`"));
        options.push_str(" --topic ");
        options.push_str(topic);
    }
    Loss::Refused(format!(
        "Start::Latest would skip messages: the group `{group}` has committed nothing in the topic {}, and yet this consumer \
         has handled messages before. Its offsets have expired, or it is another group or another topic. Use Start::Earliest, \
         by which what was handled is told by its claims; or skip what is there, by `kafka-consumer-groups.sh \
         --bootstrap-server {place} --group {group}{options} --reset-offsets --to-latest --execute`",
        names.join(", ")
    ))
}

/// The client does not tell which topic of its name it is.
pub(crate) fn no_id(place: &str, topic: &str) -> Loss {
    let (_, version) = rdkafka::util::get_rdkafka_version();
    Loss::Refused(format!(
        "the id of the topic `{topic}` at {place} is not known, so that a topic that was made anew could not be told from this \
         one, and messages would be skipped: the brokers must be of Kafka 2.8 or later; if they are, librdkafka {version} \
         tells the id otherwise than idem reads it: build with rdkafka 0.39, and report this"
    ))
}

/// What a setting came to. librdkafka's words may hold the value, and values may be secrets.
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

/// How TLS is had.
pub(crate) const SSL: &str = "TLS, SCRAM and OAUTHBEARER need OpenSSL, which is linked only with the feature `ssl` of idem-kafka \
                              (`kafka-ssl` of idem-rs)";

/// What librdkafka tries again by itself.
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
