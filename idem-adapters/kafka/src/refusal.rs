//! Errors with which the client or a broker answers a message.

use rdkafka::error::RDKafkaErrorCode as Code;

/// What an error says about a message.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Its topic takes no message from here. The text says what to do.
    Topic(&'static str),
    /// A batch of messages was refused, and the error does not say which of them is the cause. The text says what to do
    /// about one that is refused by itself.
    Batch(&'static str),
    /// The message is not the cause.
    Broker,
}

impl Refusal {
    pub(crate) fn of(code: Code) -> Self {
        match code {
            Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId | Code::UnknownPartition => {
                Self::Topic("the topic does not exist, and idem creates none: create it")
            }
            Code::InvalidTopic => Self::Topic("brokers allow no topic of this name: use another one"),
            Code::TopicAuthorizationFailed => {
                Self::Topic("the user may not write to the topic: allow it (kafka-acls.sh --add --operation Write)")
            }
            Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => Self::Batch(
                "with key and headers it is larger than the topic or the client takes: raise max.message.bytes of the topic, \
                 and .property(\"message.max.bytes\", ..) of Kafka::options if that is lower, or send less",
            ),
            Code::InvalidRecord | Code::InvalidDifferentRecord => {
                Self::Batch("the topic refuses such a record: in a compacted topic, each needs a key")
            }
            Code::UnsupportedForMessageFormat => Self::Batch("the topic has a message format of before Kafka 0.11"),
            // Everything else passes, or concerns all messages, as a wrong clock does. This includes messages that were
            // purged, and those that have timed out: they may be there.
            _ => Self::Broker,
        }
    }
}
