//! A topic for each test, a client separate from the one under test, and a relay that can be cut.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

pub(crate) mod login;
pub(crate) mod relay;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use idem_conformance::Proxy;
use idem_core::{Acker, BoxError, Delivery, Source, SubscribeOptions};
use idem_kafka::{Kafka, KafkaAcker, Options, Topic};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::time::timeout;

/// Longer than anything takes here. A test that waits this long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The group of the tests; [`World`] appends the topic's name. Each test has its own topic, so that tests do not
/// interfere.
pub(crate) const GROUP: &str = "billing";

pub(crate) fn brokers() -> Option<String> {
    idem_conformance::server("KAFKA_BROKERS")
}

/// The topic and the group of a test, as seen by a separate client.
pub(crate) struct World {
    pub(crate) brokers: String,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) admin: AdminClient<DefaultClientContext>,
    pub(crate) producer: FutureProducer,
}

impl World {
    /// Creates a topic with one partition. Returns `None` if there is no broker to test against.
    pub(crate) async fn new() -> Option<Self> {
        Self::with(1).await
    }

    pub(crate) async fn with(partitions: i32) -> Option<Self> {
        let world = Self::empty().await?;
        world.create(partitions, &[]).await;
        Some(world)
    }

    /// Does not create the topic.
    pub(crate) async fn empty() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let brokers = brokers()?;
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let topic = format!("idem-test-{}-{now}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let client = client(&brokers);
        let (admin, producer) = (client.create().unwrap(), client.create().unwrap());
        Some(Self { brokers, group: format!("{GROUP}-{topic}"), topic, admin, producer })
    }

    /// Another topic in the same group, whose name begins with the name of this one. It does not exist yet.
    pub(crate) fn beside(&self, name: &str) -> Self {
        let client = client(&self.brokers);
        let topic = format!("{}.{name}", self.topic);
        let (brokers, group) = (self.brokers.clone(), self.group.clone());
        Self { brokers, topic, group, admin: client.create().unwrap(), producer: client.create().unwrap() }
    }

    pub(crate) async fn create(&self, partitions: i32, settings: &[(&str, &str)]) {
        let mut topic =
            NewTopic::new(&self.topic, partitions, TopicReplication::Fixed(1)).set("max.message.bytes", "8388608");
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let wait = async {
            // The creation fails for a moment after the topic was deleted.
            while self.admin.create_topics([&topic], &AdminOptions::new()).await.unwrap()[0].is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // The topic exists a moment before it has a leader.
            loop {
                let metadata = self.producer_metadata();
                if metadata.0 == partitions as usize && metadata.1 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, wait).await.expect("the topic was not made");
    }

    /// The number of partitions, and whether each has a leader.
    fn producer_metadata(&self) -> (usize, bool) {
        use rdkafka::producer::Producer;
        let metadata = self.producer.client().fetch_metadata(Some(&self.topic), LONG).unwrap();
        let partitions = metadata.topics()[0].partitions();
        (partitions.len(), partitions.iter().all(|partition| partition.leader() >= 0 && partition.error().is_none()))
    }

    pub(crate) async fn delete(&self) {
        self.admin.delete_topics(&[&self.topic], &AdminOptions::new()).await.unwrap()[0].as_ref().unwrap();
    }

    pub(crate) async fn set(&self, name: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(&self.topic)).set(name, value);
        self.admin.alter_configs([&change], &AdminOptions::new()).await.unwrap()[0].as_ref().unwrap();
    }

    pub(crate) async fn grow(&self, partitions: usize) {
        let more = NewPartitions::new(&self.topic, partitions);
        self.admin.create_partitions([&more], &AdminOptions::new()).await.unwrap()[0].as_ref().unwrap();
        let wait = async {
            while self.producer_metadata() != (partitions, true) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG, wait).await.expect("the partition was not made");
    }

    pub(crate) async fn kafka(&self) -> Kafka {
        options(&self.brokers).connect().await.unwrap()
    }

    pub(crate) async fn topic(&self) -> Topic {
        self.topic_of(&self.kafka().await).await
    }

    /// The source of this connection.
    pub(crate) async fn topic_of(&self, kafka: &Kafka) -> Topic {
        kafka.topic(&self.topic).await.unwrap().group(&self.group)
    }

    /// Publishes the first record, consumes it by this connection, and commits its offset.
    pub(crate) async fn consume(&self, kafka: &Kafka) {
        self.publish("x").await;
        let mut topic = self.topic_of(kafka).await;
        topic.subscribe(subscribe_options(1)).await.unwrap();
        let (delivery, acker) = next(&mut topic).await;
        assert_eq!(delivery.payload(), "x");
        acker.ack().await.unwrap();
        self.until_committed(0, 1).await;
    }

    /// The source, subscribed.
    pub(crate) async fn open(&self, max_unsettled: u16) -> Topic {
        let mut topic = self.topic().await;
        topic.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        topic
    }

    /// The source, subscribed through a relay.
    pub(crate) async fn open_through(&self, relay: &Proxy, max_unsettled: u16) -> Topic {
        let kafka = options(relay.address()).connect().await.unwrap();
        let mut topic = self.topic_of(&kafka).await;
        topic.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        topic
    }

    /// Publishes to partition 0.
    pub(crate) async fn publish(&self, payload: impl AsRef<[u8]>) {
        self.publish_to(0, payload).await;
    }

    /// Publishes one message after another.
    pub(crate) async fn publish_each(&self, payloads: impl IntoIterator<Item: ToString>) {
        for payload in payloads {
            self.publish(payload.to_string()).await;
        }
    }

    pub(crate) async fn publish_to(&self, partition: i32, payload: impl AsRef<[u8]>) {
        self.send(FutureRecord::<[u8], _>::to(&self.topic).partition(partition).payload(payload.as_ref())).await;
    }

    pub(crate) async fn send(&self, record: FutureRecord<'_, [u8], [u8]>) {
        self.producer.send(record, LONG).await.unwrap();
    }

    /// The offset that the group has committed.
    pub(crate) fn committed(&self, partition: i32) -> Option<i64> {
        self.read(partition).elements()[0].offset().to_raw().filter(|offset| *offset >= 0)
    }

    /// The metadata of the committed offset.
    pub(crate) fn note(&self, partition: i32) -> String {
        self.read(partition).elements()[0].metadata().to_owned()
    }

    fn read(&self, partition: i32) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, partition);
        self.member().committed_offsets(list, LONG).unwrap()
    }

    /// Waits until the group has committed this offset.
    pub(crate) async fn until_committed(&self, partition: i32, offset: i64) {
        let mut seen = None;
        let wait = async {
            while seen != Some(offset) {
                seen = self.committed(partition);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if timeout(LONG, wait).await.is_err() {
            panic!("{seen:?} is committed, and {offset} should be");
        }
    }

    /// Commits this offset for the group, as an operator does while the group has no members.
    pub(crate) fn commit(&self, partition: i32, offset: i64) {
        self.commit_with(partition, offset, "");
    }

    pub(crate) fn commit_with(&self, partition: i32, offset: i64, note: &str) {
        let mut list = TopicPartitionList::new();
        let mut place = list.add_partition(&self.topic, partition);
        place.set_offset(Offset::Offset(offset)).unwrap();
        place.set_metadata(note);
        self.member().commit(&list, CommitMode::Sync).unwrap();
    }

    /// A client of the group that never joins it.
    pub(crate) fn member(&self) -> BaseConsumer {
        let mut client = client(&self.brokers);
        client.set("group.id", &self.group).set("enable.auto.commit", "false");
        client.create().unwrap()
    }

    /// The first existing offset, and the next one to be written.
    pub(crate) fn range(&self, partition: i32) -> (i64, i64) {
        use rdkafka::producer::Producer;
        self.producer.client().fetch_watermarks(&self.topic, partition, LONG).unwrap()
    }
}

pub(crate) fn client(brokers: &str) -> ClientConfig {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", brokers).set("message.max.bytes", "8388608").set("linger.ms", "0");
    client
}

/// Options with which a member notices changes and gives partitions back quickly.
pub(crate) fn options(brokers: &str) -> Options {
    Kafka::options(brokers)
        .property("session.timeout.ms", "15000")
        .property("heartbeat.interval.ms", "300")
        .property("topic.metadata.refresh.interval.ms", "300")
}

pub(crate) fn subscribe_options(max_unsettled: u16) -> SubscribeOptions {
    SubscribeOptions::new(GROUP, max_unsettled)
}

pub(crate) async fn next(topic: &mut Topic) -> (Delivery, KafkaAcker) {
    timeout(LONG, topic.next()).await.expect("no delivery came").unwrap()
}

/// The error that `next` returns.
pub(crate) async fn loss(topic: &mut Topic) -> BoxError {
    timeout(LONG, topic.next()).await.expect("the loss was not noticed").expect_err("there was still a delivery")
}
