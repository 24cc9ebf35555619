//! The conformance suite for sinks, on Kafka, and what only Kafka has.

use std::time::{Duration, Instant};

use crate::common;
use crate::common::LONG;
use crate::common::relay;
use futures_util::future::join_all;
use idem_conformance::Proxy;
use idem_conformance::sink::{World, message, publish, relay};
use idem_conformance::texts;
use idem_core::{Delivery, Outgoing, Sink, SinkError, StagedMessage};
use idem_kafka::{Kafka, Producer, Topic};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use tokio::time::timeout;
use uuid::Uuid;

/// A topic with three partitions, and a relay in front of its broker.
struct Partitioned {
    world: common::World,
    relay: Proxy,
}

impl World for Partitioned {
    type Sink = Producer;
    type Source = Topic;

    /// One byte more than a producer takes by default.
    const TOO_LARGE: usize = 1_000_001;

    async fn make() -> Option<Self> {
        let world = common::World::with(3).await?;
        let relay = relay::start(&world.brokers).await;
        Some(Self { world, relay })
    }

    async fn sink(&self) -> Producer {
        Kafka::connect(self.relay.address()).await.unwrap().producer()
    }

    async fn cloud_events(&self, source: &str) -> Producer {
        self.sink().await.cloud_events(source)
    }

    /// A producer is of no topic.
    async fn missing(&self) -> Option<(Producer, String)> {
        None
    }

    async fn source(&self) -> Topic {
        self.world.topic().await
    }

    fn to(&self) -> String {
        self.world.topic.clone()
    }

    fn unroutable(&self) -> String {
        format!("{}-none", self.world.topic)
    }

    fn unpublishable(&self) -> Vec<(Outgoing, &'static str)> {
        vec![
            (Outgoing::new("", "{}"), "is not the name of a topic"),
            (Outgoing::new("orders/paid", "{}"), "is not the name of a topic"),
            (Outgoing::new("x".repeat(250), "{}"), "is not the name of a topic"),
            (Outgoing::new(self.to(), "{}").header("a\0b", ""), "the name of a header has a NUL"),
            (Outgoing::new(self.to(), "{}").header("a", vec![0; 1_000_001]), "max.message.bytes"),
        ]
    }

    fn event_type(delivery: &Delivery) -> Option<String> {
        delivery.headers().get_str("event-type").map(ToOwned::to_owned)
    }

    fn key(delivery: &Delivery) -> Option<Vec<u8>> {
        delivery.partition_key().map(ToOwned::to_owned)
    }

    async fn cut(&self) {
        self.relay.cut();
    }

    async fn hold(&self, held: bool) {
        self.relay.hold(held);
    }
}

idem_conformance::sink_suite!(Partitioned);

/// The keys of so many records of a topic, each with its partition, sorted.
fn partitions(world: &common::World, partitions: i32, records: usize) -> Vec<(String, i32)> {
    let reader: BaseConsumer = world.member();
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset(&world.topic, partition, Offset::Beginning).unwrap();
    }
    reader.assign(&list).unwrap();
    let mut found = Vec::new();
    let began = Instant::now();
    while found.len() < records {
        assert!(began.elapsed() < LONG, "{found:?}");
        // A broker may not have noticed yet that it leads a new partition.
        if let Some(Ok(record)) = reader.poll(Duration::from_millis(100)) {
            found.push((String::from_utf8(record.key().unwrap().to_vec()).unwrap(), record.partition()));
        }
    }
    found.sort();
    found
}

/// A topic that does not exist is refused before a relay loses patience, and taken as soon as it is created.
#[tokio::test]
async fn a_topic_that_is_created_later_takes_the_message_then() {
    let Some(world) = common::World::empty().await else { return };
    let sink = Kafka::connect(&world.brokers).await.unwrap().producer();
    sink.open().await.unwrap();
    let message = message(&world.topic);
    for _ in 0..2 {
        let began = Instant::now();
        let error = publish(&sink, &message).await.unwrap_err();
        assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains("does not exist"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    }
    world.create(1, &[]).await;
    let published = async { while sink.publish(&message).await.is_err() {} };
    timeout(LONG, published).await.expect("the new topic is not noticed");
    assert_eq!(world.range(0), (0, 1));
    sink.close().await;
}

/// Messages of one key are in one partition: the one that Kafka's client in Java chooses.
#[tokio::test]
async fn the_partition_of_a_key_is_that_of_javas_client() {
    let Some(world) = common::World::with(100).await else { return };
    let sink = Kafka::connect(&world.brokers).await.unwrap().producer();
    sink.open().await.unwrap();
    for key in ["21", "foobar", "21"] {
        let message = StagedMessage::new(Uuid::now_v7(), Outgoing::new(&world.topic, "{}").key(key));
        publish(&sink, &message).await.unwrap();
    }
    let found = partitions(&world, 100, 3);
    // toPositive(Utils.murmur2(key)) % 100, of the values in Kafka's own UtilsTest.
    let java = |hash: i32| (hash & 0x7fff_ffff) % 100;
    let expected = [("21", java(-973_932_308)), ("21", java(-973_932_308)), ("foobar", java(-790_332_482))];
    assert_eq!(found, expected.map(|(key, partition)| (key.to_owned(), partition)));
    sink.close().await;
}

/// A topic refuses a batch that is too large as a whole. Only the message that is too large by itself fails.
#[tokio::test]
async fn a_small_message_in_a_batch_that_is_too_large_is_published() {
    let Some(world) = common::World::empty().await else { return };
    world.create(1, &[("max.message.bytes", "10000")]).await;
    // They wait for each other, and so come in one batch.
    let kafka = Kafka::options(&world.brokers).property("linger.ms", "200").connect().await.unwrap();
    let sink = kafka.producer();
    sink.open().await.unwrap();
    let sized = |size: usize| StagedMessage::new(Uuid::now_v7(), Outgoing::new(&world.topic, vec![b'x'; size]));
    let messages: Vec<_> = (0..40).map(|number| sized(if number == 7 { 20_000 } else { 1000 })).collect();
    let results = join_all(messages.iter().map(|message| publish(&sink, message))).await;
    for (message, result) in messages.iter().zip(results) {
        if message.payload().len() == 1000 {
            result.unwrap();
            continue;
        }
        let error = result.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, SinkError::Message(_))
                && text.contains("20000 bytes")
                && text.contains("max.message.bytes"),
            "{text}"
        );
    }
    assert_eq!(world.range(0), (0, 39));
    sink.close().await;
}

/// A compacted topic refuses a record without a key, and the whole batch with it. The others are published.
#[tokio::test]
async fn a_message_without_a_key_is_refused_by_a_compacted_topic() {
    let Some(world) = common::World::empty().await else { return };
    world.create(1, &[("cleanup.policy", "compact")]).await;
    let kafka = Kafka::options(&world.brokers).property("linger.ms", "200").connect().await.unwrap();
    let sink = kafka.producer();
    sink.open().await.unwrap();
    let keyed = |key: i32| StagedMessage::new(Uuid::now_v7(), Outgoing::new(&world.topic, "{}").key(key));
    let (one, none, two) = (keyed(1), message(&world.topic), keyed(2));
    let (one, none, two) = tokio::join!(publish(&sink, &one), publish(&sink, &none), publish(&sink, &two));
    one.unwrap();
    two.unwrap();
    let error = none.unwrap_err();
    assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains("needs a key"), "{error}");
    sink.close().await;
}

/// A broker that hangs is a failure of the broker, before a relay gives up, and what was given up is not sent later.
#[tokio::test]
async fn what_has_no_report_is_given_up_and_not_sent_later() {
    let Some(world) = Partitioned::make().await else { return };
    let sink = world.sink().await;
    sink.open().await.unwrap();
    relay(&sink, &message(world.to())).await.unwrap();
    world.relay.refuse(true);
    let began = Instant::now();
    let messages: Vec<_> = (0..10).map(|_| message(world.to())).collect();
    for result in join_all(messages.iter().map(|message| publish(&sink, message))).await {
        assert!(matches!(result, Err(SinkError::Broker(_))), "{result:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    world.relay.refuse(false);
    relay(&sink, &message(world.to())).await.unwrap();
    let records: i64 = (0..3).map(|partition| world.world.range(partition).1).sum();
    assert_eq!(records, 2);
    sink.close().await;
}

/// A login that becomes wrong is a failure of the broker, and neither error nor sink shows the password. With the right
/// one, messages are published again.
#[tokio::test]
async fn a_login_that_is_refused_is_asked_for_again_and_not_shown() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let Some(world) = common::World::new().await else { return };
    let Some(listener) = world.login("PLAIN").await else { return };
    let right = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&right);
    let options = Kafka::options(&listener).sasl_credentials(move || {
        let password = if asked.load(SeqCst) { "idem" } else { "s3ntinel" };
        async move { Ok(idem_kafka::Credentials::new("idem", password)) }
    });
    let sink = options.connect().await.unwrap().producer();
    right.store(false, SeqCst);
    let began = Instant::now();
    for error in [sink.open().await.unwrap_err(), publish(&sink, &message(&world.topic)).await.unwrap_err()] {
        assert!(matches!(error, SinkError::Broker(_)), "{error}");
        let texts = texts(&error);
        assert!(!texts.contains("s3ntinel") && texts.contains("127.0.0.1"), "{texts}");
    }
    assert!(began.elapsed() < Duration::from_secs(6), "the login is not noticed: {:?}", began.elapsed());
    assert!(!format!("{sink:?}").contains("s3ntinel"));
    right.store(true, SeqCst);
    relay(&sink, &message(&world.topic)).await.unwrap();
    sink.close().await;
}
