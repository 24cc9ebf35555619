//! librdkafka settings: those that idem reserves, and idem's defaults.

use idem_core::Error;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// The settings that the user cannot change, and why.
const OWN: &[(&str, &str)] = &[
    ("bootstrap.servers", "the brokers are what `Kafka::connect` and `Kafka::options` are given"),
    ("metadata.broker.list", "the brokers are what `Kafka::connect` and `Kafka::options` are given"),
    ("group.id", "the group is the worker's name: give another one by `.group(..)` of the topic"),
    ("group.instance.id", "use `.static_member(..)` on the topic"),
    ("group.protocol", "use `.group_protocol(..)` on the topic"),
    ("group.protocol.type", "it is that of consumers"),
    ("partition.assignment.strategy", "all members must give partitions back one by one (cooperative-sticky)"),
    ("enable.auto.commit", "only what is finished is committed, and idem does that"),
    ("auto.commit.enable", "only what is finished is committed, and idem does that"),
    ("auto.commit.interval.ms", "only what is finished is committed, and idem does that"),
    (
        "enable.auto.offset.store",
        "offsets of unfinished messages would be committed, and a crash would lose those messages",
    ),
    (
        "auto.offset.reset",
        "an offset out of range must not be skipped silently; `.start(..)` sets where a group starts",
    ),
    ("offset.store.method", "offsets are kept by the brokers"),
    ("offset.store.path", "offsets are kept by the brokers"),
    ("isolation.level", "messages of transactions that were aborted would be handled"),
    ("enable.partition.eof", "the end of a partition is no event for a worker"),
    ("allow.auto.create.topics", "a topic that does not exist is refused"),
];

/// Refuses settings that would break the guarantee.
pub(crate) fn check(name: &str) -> Result<(), Error> {
    match OWN.iter().find(|(own, _)| *own == name) {
        Some((_, why)) => Err(Error::Config(format!("the setting `{name}` is idem's own: {why}. Leave it out"))),
        None => Ok(()),
    }
}

/// idem's defaults where they differ from librdkafka's. The user's settings override them.
pub(crate) fn defaults() -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        .set("client.id", "idem")
        .set("allow.auto.create.topics", "false")
        // By default, the client would buffer 100,000 messages and 64 MiB of each partition unhandled, and would not
        // check a partition with enough records again for a second.
        .set("queued.min.messages", "1000")
        .set("queued.max.messages.kbytes", "4096")
        .set("fetch.queue.backoff.ms", "10")
        // By default, the client may wait up to 15 seconds before it tries to reconnect to a broker that is back.
        .set("reconnect.backoff.max.ms", "1000")
        .set_log_level(RDKafkaLogLevel::Warning);
    client
}
