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
    ("enable.idempotence", "a producer without it would reorder and repeat messages"),
    ("acks", "a message is confirmed when all replicas in sync have it"),
    ("request.required.acks", "a message is confirmed when all replicas in sync have it"),
    ("transactional.id", "an outbox needs no transaction of Kafka"),
    ("enable.gapless.guarantee", "one refused message would end the producer"),
    ("delivery.report.only.error", "confirmed messages would never be deleted from the outbox"),
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

/// librdkafka's default of `message.max.bytes`.
const LARGEST: usize = 1_000_000;

/// idem's defaults of a producer where they differ from librdkafka's, each with its alias. The user's settings override
/// them.
const OF_PRODUCER: &[(&str, &str, &str)] = &[
    // A relay has at most one message of each key under way, so waiting for more costs time and saves little.
    ("linger.ms", "queue.buffering.max.ms", "0"),
    // A little less than a relay waits for a confirm. What it gives up and publishes again is then not in the queue of
    // the client any more, to be sent as well when the brokers are back.
    ("message.timeout.ms", "delivery.timeout.ms", "8000"),
    // For so long a topic that does not exist may be one that was created a moment ago. Thirty seconds would be longer
    // than a relay waits, and so look like an outage.
    ("topic.metadata.propagation.max.ms", "", "2000"),
    // The partition of a key is that of Kafka's own client in Java.
    ("partitioner", "", "murmur2_random"),
];

/// Returns the settings of a producer. One that is `single` sends each message in a batch by itself.
pub(crate) fn of_producer(client: &ClientConfig, single: bool) -> ClientConfig {
    let mut producer = client.clone();
    producer.remove("queued.min.messages").remove("queued.max.messages.kbytes").remove("fetch.queue.backoff.ms");
    // This includes `acks=all`.
    producer.set("enable.idempotence", "true");
    for (name, alias, value) in OF_PRODUCER {
        if producer.get(name).is_none() && producer.get(alias).is_none() {
            producer.set(*name, *value);
        }
    }
    if single {
        producer.set("batch.num.messages", "1");
    }
    producer
}

/// Returns the size of the largest message that the client takes.
pub(crate) fn largest(client: &ClientConfig) -> usize {
    client.get("message.max.bytes").and_then(|value| value.parse().ok()).unwrap_or(LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producers_defaults_yield_to_settings_and_the_guarantee_does_not() {
        let mut client = defaults();
        let producer = of_producer(&client, false);
        let all = |name: &str| producer.get(name).map(ToOwned::to_owned);
        assert_eq!(all("message.timeout.ms").as_deref(), Some("8000"));
        assert_eq!((all("enable.idempotence").as_deref(), all("queued.min.messages")), (Some("true"), None));
        assert_eq!(largest(&client), LARGEST);
        client.set("delivery.timeout.ms", "9").set("linger.ms", "7").set("message.max.bytes", "5000");
        let producer = of_producer(&client, true);
        assert_eq!((producer.get("message.timeout.ms"), producer.get("linger.ms")), (None, Some("7")));
        assert_eq!((producer.get("batch.num.messages"), largest(&client)), (Some("1"), 5000));
        for own in ["enable.idempotence", "acks", "delivery.report.only.error", "transactional.id"] {
            assert!(check(own).is_err(), "{own}");
        }
    }
}
