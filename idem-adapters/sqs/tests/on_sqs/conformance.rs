//! The conformance suite for sources, on a standard queue of SQS.

use std::time::Duration;

use crate::common;
use idem_conformance::Proxy;
use idem_conformance::source::{Features, World};
use idem_sqs::Queue;
use idem_test::Publication;
use tokio::time::{sleep, timeout};

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

    /// A request opens another connection if its own is cut before it is sent, so an idle source must see one refused. A source
    /// whose receive was under way has lost that, and sends no more; an idle one sends a receive each second.
    async fn cut(&self) {
        let before = self.relay.refused();
        self.relay.refuse(true);
        let _ = timeout(Duration::from_secs(2), async {
            while self.relay.refused() == before {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        self.relay.refuse(false);
    }

    async fn ready(&self) -> usize {
        self.world.ready().await
    }
}

idem_conformance::source_suite!(Standard);
