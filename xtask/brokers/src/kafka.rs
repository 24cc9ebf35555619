//! A topic of several partitions, and publishing with acks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::{Broker, WINDOW};

/// Several, so that workers share them, and some move when a worker joins or leaves.
const PARTITIONS: i32 = 4;

/// How many deliveries of a partition go through the inbox after its assignment.
const STORED: u16 = 16;

/// Longer than any response of a reachable broker.
const PATIENCE: Duration = Duration::from_secs(30);

/// Apache Kafka.
pub struct Kafka {
    topic: String,
    partitions: i32,
    config: ClientConfig,
    admin: AdminClient<DefaultClientContext>,
    producer: FutureProducer,
    /// The number of published messages.
    turn: AtomicI32,
    /// Reads the offsets that the group has committed, and never joins the group.
    observer: Arc<BaseConsumer>,
}

impl Kafka {
    /// Sets the number of partitions for `create`.
    pub fn partitions(mut self, partitions: i32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Publishes to one partition, in this order.
    ///
    /// # Errors
    /// The broker cannot be reached or refuses it.
    pub async fn publish_to(&self, partition: i32, payloads: &[Vec<u8>]) -> Result<()> {
        self.publish_by(|| partition, payloads).await
    }

    async fn publish_by(&self, partition: impl Fn() -> i32, payloads: &[Vec<u8>]) -> Result<()> {
        for window in payloads.chunks(WINDOW) {
            let mut acks = Vec::with_capacity(window.len());
            for payload in window {
                let record = FutureRecord::<(), _>::to(&self.topic).partition(partition()).payload(payload);
                acks.push(self.producer.send_result(record).map_err(|(error, _)| error)?);
            }
            for ack in acks {
                ack.await.context("the producer ended")?.map_err(|(error, _)| error)?;
            }
        }
        Ok(())
    }
}

/// Reads all partitions from their beginnings to their present ends.
fn read(reader: &BaseConsumer, topic: &str, partitions: i32) -> Result<Vec<Vec<u8>>> {
    let (mut assigned, mut ends) = (TopicPartitionList::new(), HashMap::new());
    for partition in 0..partitions {
        let (low, high) = reader.fetch_watermarks(topic, partition, PATIENCE)?;
        if low < high {
            assigned.add_partition_offset(topic, partition, Offset::Offset(low))?;
            ends.insert(partition, high);
        }
    }
    reader.assign(&assigned)?;
    let mut recorded = Vec::new();
    while !ends.is_empty() {
        let record = reader.poll(PATIENCE).context("the topic is not read to its end")??;
        recorded.push(record.payload().unwrap_or_default().to_vec());
        if ends.get(&record.partition()).is_some_and(|end| record.offset() + 1 >= *end) {
            ends.remove(&record.partition());
        }
    }
    Ok(recorded)
}

impl Broker for Kafka {
    type Source = idem::kafka::Topic;
    type Sink = idem::kafka::Producer;

    const NAME: &'static str = "kafka";
    const VARIABLE: &'static str = "KAFKA_BROKERS";
    const START: fn() -> Result<idem_services::Instance> = idem_services::Kafka::start;

    async fn connect(address: &str, name: &str) -> Result<Self> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", address);
        // The producer would otherwise wait 5 ms for more messages, and that would be part of a measured latency.
        let producer = config.clone().set("enable.idempotence", "true").set("linger.ms", "0").create()?;
        Ok(Self {
            topic: name.to_owned(),
            partitions: PARTITIONS,
            admin: config.create()?,
            producer,
            turn: AtomicI32::new(0),
            observer: Arc::new(config.clone().set("group.id", name).create()?),
            config,
        })
    }

    async fn create_keeping(&self, kept: Duration) -> Result<()> {
        let kept = kept.as_millis().to_string();
        // The topic may not exist.
        let _ = self.delete().await;
        // A deletion continues for a while after its response.
        for _ in 0..100 {
            let topic = NewTopic::new(&self.topic, self.partitions, TopicReplication::Fixed(1));
            let topic = topic.set("retention.ms", &kept);
            match self.admin.create_topics([&topic], &AdminOptions::new()).await?.pop() {
                Some(Ok(_)) => return Ok(()),
                Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => bail!("cannot create the topic {}: {other:?}", self.topic),
            }
        }
        bail!("the topic {} is still being deleted", self.topic)
    }

    async fn publish(&self, payloads: &[Vec<u8>]) -> Result<()> {
        // Round-robin, so that a copy is usually in another partition than its original.
        let next = || self.turn.fetch_add(1, Ordering::Relaxed).rem_euclid(self.partitions);
        self.publish_by(next, payloads).await
    }

    async fn recorded(&self) -> Result<Vec<Vec<u8>>> {
        let (mut config, topic, partitions) = (self.config.clone(), self.topic.clone(), self.partitions);
        // Not the group of the workers, whose offsets it must not touch.
        config.set("group.id", format!("{topic}-record")).set("enable.auto.commit", "false");
        tokio::task::spawn_blocking(move || read(&config.create()?, &topic, partitions)).await?
    }

    /// Computed from the offsets that the group has committed.
    async fn left(&self) -> Result<u64> {
        let (observer, topic, partitions) = (self.observer.clone(), self.topic.clone(), self.partitions);
        let left = tokio::task::spawn_blocking(move || {
            let mut asked = TopicPartitionList::new();
            asked.add_partition_range(&topic, 0, partitions - 1);
            let committed = observer.committed_offsets(asked, PATIENCE)?;
            let mut left = 0;
            for partition in committed.elements() {
                let (low, high) = observer.fetch_watermarks(&topic, partition.partition(), PATIENCE)?;
                let next = match partition.offset() {
                    Offset::Offset(next) => next,
                    _ => low,
                };
                left +=
                    u64::try_from(high - next).map_err(|_| anyhow!("{next} is committed, beyond the end {high}"))?;
            }
            Ok(left)
        });
        left.await?
    }

    async fn forget(&self) -> Result<bool> {
        match self.admin.delete_groups(&[&self.topic], &AdminOptions::new()).await?.pop() {
            Some(Ok(_)) => Ok(true),
            Some(Err((_, RDKafkaErrorCode::NonEmptyGroup))) => Ok(false),
            other => bail!("cannot delete the group {}: {other:?}", self.topic),
        }
    }

    async fn delete(&self) -> Result<()> {
        // The group's offsets are deleted with the topic. The group itself is left to the server: librdkafka 2.12
        // sometimes aborts the process when a new client requests that (an assertion in its search for the group's
        // coordinator).
        match self.admin.delete_topics(&[&self.topic], &AdminOptions::new()).await?.pop() {
            Some(Err((_, error))) => Err(error.into()),
            _ => Ok(()),
        }
    }

    const WARM_UP: usize = PARTITIONS as usize * STORED as usize;

    const POSITION: bool = true;

    async fn source(address: &str, name: &str) -> Result<Self::Source> {
        let kafka = idem::Kafka::options(address)
            .property("session.timeout.ms", "2000")
            .property("heartbeat.interval.ms", "500")
            .property("max.poll.interval.ms", "4000")
            .connect()
            .await?;
        Ok(kafka.topic(name).await?.group(name).window(STORED))
    }

    async fn default_source(address: &str, name: &str) -> Result<Self::Source> {
        Ok(idem::Kafka::connect(address).await?.topic(name).await?.group(name))
    }

    async fn sink(address: &str) -> Result<Self::Sink> {
        Ok(idem::Kafka::connect(address).await?.producer())
    }
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kafka").field("topic", &self.topic).finish_non_exhaustive()
    }
}
