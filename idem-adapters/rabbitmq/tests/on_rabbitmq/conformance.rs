//! The conformance suite for sources, on a quorum queue and a classic queue of RabbitMQ.

use crate::common;
use crate::common::relay::Relay;
use idem_conformance::source::{Features, World};
use idem_rabbitmq::{Queue, RabbitMq};
use idem_test::Publication;
use lapin::BasicProperties;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

/// A queue consumed through a relay that can cut connections.
struct OneQueue<const CLASSIC: bool> {
    world: common::World,
    relay: Relay,
}

impl<const CLASSIC: bool> World for OneQueue<CLASSIC> {
    type Source = Queue;

    const FEATURES: Features = Features {
        message_id: true,
        assigns_ids: false,
        event_type: true,
        content_type: true,
        correlation: true,
        partition_key: false,
        grouped: false,
        produced_at: true,
        header_bytes: true,
        max_payload: None,
        redelivered: true,
        presumes: false,
        confirms: false,
        releases: true,
        survives: false,
        counts_released: true,
        counts_unsettled: false,
        lag: true,
    };

    async fn make() -> Option<Self> {
        let world = common::World::empty().await?;
        world.declare(if CLASSIC { "classic" } else { "quorum" }, &[]).await;
        let relay = Relay::start(&world.url).await;
        Some(Self { world, relay })
    }

    fn subject(&self) -> Option<String> {
        Some(self.world.queue.clone())
    }

    async fn publish(&self, publication: Publication) {
        let mut headers = FieldTable::default();
        for (name, value) in publication.get_headers().iter() {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        }
        let mut properties = BasicProperties::default().with_headers(headers);
        if let Some(id) = publication.get_message_id() {
            properties = properties.with_message_id(id.into());
        }
        if let Some(kind) = publication.get_event_type() {
            properties = properties.with_type(kind.into());
        }
        if let Some(of) = publication.get_content_type() {
            properties = properties.with_content_type(of.into());
        }
        if let Some(id) = publication.get_correlation_id() {
            properties = properties.with_correlation_id(id.into());
        }
        if let Some(to) = publication.get_reply_to() {
            properties = properties.with_reply_to(to.into());
        }
        if let Some(at) = publication.get_produced_at() {
            properties = properties.with_timestamp(at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs());
        }
        self.world.publish_with(publication.payload(), properties).await;
    }

    async fn source(&self) -> Queue {
        let rabbit = RabbitMq::connect(self.relay.url(&self.world.url)).await.unwrap();
        if CLASSIC {
            rabbit.classic_queue(&self.world.queue).await.unwrap()
        } else {
            rabbit.queue(&self.world.queue).await.unwrap()
        }
    }

    async fn cut(&self) {
        self.relay.cut();
    }

    async fn ready(&self) -> usize {
        let (name, options) = (self.world.queue.as_str(), QueueDeclareOptions { passive: true, ..Default::default() });
        let queue = self.world.channel.queue_declare(name.into(), options, FieldTable::default()).await.unwrap();
        queue.message_count() as usize
    }
}

idem_conformance::source_suite!(OneQueue<false>);

mod classic {
    idem_conformance::source_suite!(super::OneQueue<true>);
}
