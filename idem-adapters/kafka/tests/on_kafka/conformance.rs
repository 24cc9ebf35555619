//! Runs the conformance suite for sources against Kafka.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::common;
use crate::common::options;
use crate::common::relay;
use idem_conformance::Proxy;
use idem_conformance::source::{Features, World};
use idem_kafka::{GroupProtocol, Kafka, Topic};
use idem_test::Publication;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;

/// A topic with one partition, consumed through a relay that can be cut. The group uses the classic protocol or, with
/// `BY_BROKERS`, the protocol of KIP-848.
struct Partitioned<const BY_BROKERS: bool> {
    world: common::World,
    relay: Proxy,
    partitions: AtomicI32,
    published: AtomicI32,
}

impl<const BY_BROKERS: bool> World for Partitioned<BY_BROKERS> {
    type Source = Topic;

    const FEATURES: Features = Features {
        message_id: true,
        assigns_ids: false,
        event_type: false,
        content_type: true,
        correlation: false,
        partition_key: true,
        grouped: false,
        produced_at: true,
        header_bytes: true,
        max_payload: None,
        redelivered: true,
        presumes: true,
        confirms: false,
        releases: false,
        survives: true,
        counts_released: true,
        counts_unsettled: true,
        lag: true,
    };

    async fn make() -> Option<Self> {
        let world = common::World::new().await?;
        let relay = relay::start(&world.brokers).await;
        Some(Self { world, relay, partitions: AtomicI32::new(1), published: AtomicI32::new(0) })
    }

    /// Adds a partition, since each partition has only one owner.
    async fn share(&self) {
        self.world.grow(2).await;
        self.partitions.store(2, Ordering::Relaxed);
    }

    /// Publishes to the partitions in turn.
    async fn publish(&self, publication: Publication) {
        let mut headers = OwnedHeaders::new();
        for (key, value) in publication.get_headers().iter() {
            headers = headers.insert(Header { key, value: Some(value) });
        }
        if let Some(id) = publication.get_message_id() {
            headers = headers.insert(Header { key: "message-id", value: Some(id) });
        }
        if let Some(of) = publication.get_content_type() {
            headers = headers.insert(Header { key: "content-type", value: Some(of) });
        }
        let partition = self.published.fetch_add(1, Ordering::Relaxed) % self.partitions.load(Ordering::Relaxed);
        let mut record = FutureRecord::to(&self.world.topic).partition(partition);
        if !publication.is_tombstone() {
            record = record.payload(publication.payload().as_ref());
        }
        if let Some(key) = publication.get_partition_key() {
            record = record.key(key.as_ref());
        }
        if let Some(at) = publication.get_produced_at() {
            let millis = at.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
            record = record.timestamp(millis.try_into().unwrap());
        }
        self.world.send(record.headers(headers)).await;
    }

    async fn source(&self) -> Topic {
        if BY_BROKERS {
            let options = Kafka::options(self.relay.address()).property("topic.metadata.refresh.interval.ms", "300");
            let topic = options.connect().await.unwrap().topic(&self.world.topic).await.unwrap();
            return topic.group(&self.world.group).group_protocol(GroupProtocol::Consumer);
        }
        let kafka = options(self.relay.address()).connect().await.unwrap();
        kafka.topic(&self.world.topic).await.unwrap().group(&self.world.group)
    }

    async fn cut(&self) {
        self.relay.cut();
    }

    /// The lag of the group, since the broker does not know how far the owner of a partition has read.
    async fn ready(&self) -> usize {
        let lag = |partition| {
            let (low, high) = self.world.range(partition);
            high - self.world.committed(partition).unwrap_or(low)
        };
        (0..self.partitions.load(Ordering::Relaxed)).map(lag).sum::<i64>().try_into().unwrap()
    }
}

mod classic {
    idem_conformance::source_suite!(super::Partitioned<false>);
}

mod by_brokers {
    idem_conformance::source_suite!(super::Partitioned<true>);
}
