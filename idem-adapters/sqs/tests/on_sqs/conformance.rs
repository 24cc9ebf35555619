//! The conformance suite for sources, on a standard queue of SQS.

use crate::common;
use idem_conformance::Proxy;
use idem_conformance::source::{Features, World};
use idem_sqs::Queue;
use idem_test::Publication;

/// A queue that is consumed through a relay, which can be cut.
struct Standard {
    world: common::World,
    relay: Proxy,
}

impl World for Standard {
    type Source = Queue;

    const FEATURES: Features = Features {
        message_id: true,
        assigns_ids: true,
        event_type: false,
        content_type: true,
        correlation: false,
        partition_key: false,
        produced_at: false,
        header_bytes: false,
        max_payload: Some(1024 * 1024),
        redelivered: true,
        presumes: false,
        confirms: true,
        releases: true,
        survives: true,
        counts_released: true,
        counts_unsettled: false,
        lag: true,
    };

    async fn make() -> Option<Self> {
        let world = common::World::new().await?;
        let relay = Proxy::start(&world.url).await;
        Some(Self { world, relay })
    }

    async fn publish(&self, publication: Publication) {
        self.world.publish(publication).await;
    }

    async fn source(&self) -> Queue {
        self.world.source_through(&self.relay).await
    }

    async fn cut(&self) {
        self.relay.cut();
    }

    async fn ready(&self) -> usize {
        self.world.ready().await
    }
}

idem_conformance::source_suite!(Standard);
