//! The suite for sources, over RabbitMQ.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::relay::Relay;
use idem_rabbitmq::{Queue, RabbitMq};
use idem_test::Publication;
use idem_test::conformance::source::{Features, World};
use lapin::BasicProperties;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

/// A quorum queue, consumed by way of a relay that can be cut.
struct Quorum {
    world: common::World,
    relay: Relay,
}

impl World for Quorum {
    type Source = Queue;

    const FEATURES: Features = Features {
        message_id: true,
        event_type: true,
        header_bytes: true,
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
        let world = common::World::new().await?;
        let relay = Relay::start(&world.url).await;
        Some(Self { world, relay })
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
        self.world.publish_with(publication.payload(), properties).await;
    }

    async fn source(&self) -> Queue {
        let rabbit = RabbitMq::connect(self.relay.url(&self.world.url)).await.unwrap();
        rabbit.queue(&self.world.queue).await.unwrap()
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

idem_test::source_suite!(Quorum);
