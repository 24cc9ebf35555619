//! The conformance suite for sources, on a standard queue and on a FIFO queue of SQS.

use std::time::Duration;

use crate::common;
use idem_conformance::Proxy;
use idem_conformance::source::{Features, World};
use idem_sqs::Queue;
use idem_test::Publication;
use tokio::time::sleep;

/// A queue that is consumed through a relay, which can be cut.
struct OneQueue<const FIFO: bool> {
    world: common::World,
    relay: Proxy,
}

impl<const FIFO: bool> World for OneQueue<FIFO> {
    type Source = Queue;

    const FEATURES: Features = Features {
        message_id: true,
        assigns_ids: true,
        event_type: false,
        content_type: true,
        correlation: false,
        partition_key: FIFO,
        grouped: FIFO,
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
        let world = if FIFO { common::World::fifo().await? } else { common::World::new().await? };
        let relay = Proxy::start(&world.url).await;
        Some(Self { world, relay })
    }

    async fn publish(&self, publication: Publication) {
        if !FIFO {
            return self.world.publish(publication).await;
        }
        let key = publication.get_partition_key().map(|key| std::str::from_utf8(key).unwrap().to_owned());
        let group = key.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        self.world.publish_to(publication, Some(&group)).await;
    }

    async fn source(&self) -> Queue {
        self.world.source_through(&self.relay).await
    }

    /// A receive that is cut goes on at the server, and hides what comes meanwhile, so none is accepted again before it has
    /// ended: after a second. By then, an idle source has seen one of its receives refused too, since it sends one each second.
    async fn cut(&self) {
        self.relay.refuse(true);
        sleep(Duration::from_secs(2)).await;
        self.relay.refuse(false);
    }

    async fn ready(&self) -> usize {
        self.world.ready().await
    }
}

idem_conformance::source_suite!(OneQueue<false>);

mod fifo {
    idem_conformance::source_suite!(super::OneQueue<true>);
}
