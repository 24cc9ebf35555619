//! The conformance suite for sources, on NATS JetStream.

use crate::common;
use async_nats::HeaderMap;
use idem_conformance::Proxy;
use idem_conformance::source::{Features, World};
use idem_nats::{Nats, Stream};
use idem_test::Publication;

/// A stream that is consumed through a relay, which can be cut.
struct JetStream {
    world: common::World,
    relay: Proxy,
}

impl World for JetStream {
    type Source = Stream;

    const FEATURES: Features = Features {
        message_id: true,
        assigns_ids: false,
        event_type: false,
        content_type: true,
        correlation: false,
        partition_key: false,
        grouped: false,
        produced_at: false,
        header_bytes: false,
        max_payload: None,
        redelivered: true,
        presumes: false,
        confirms: true,
        releases: true,
        survives: true,
        counts_released: false,
        counts_unsettled: false,
        lag: true,
    };

    async fn make() -> Option<Self> {
        let world = common::World::new().await?;
        let relay = Proxy::start(&world.url).await;
        Some(Self { world, relay })
    }

    fn subject(&self) -> Option<String> {
        Some(self.world.subject())
    }

    async fn publish(&self, publication: Publication) {
        let mut headers = HeaderMap::new();
        for (name, value) in publication.get_headers().iter() {
            headers.append(name, std::str::from_utf8(value).unwrap());
        }
        if let Some(id) = publication.get_message_id() {
            headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        }
        if let Some(of) = publication.get_content_type() {
            headers.insert("Content-Type", of);
        }
        self.world.publish_with(publication.payload(), headers).await;
    }

    async fn source(&self) -> Stream {
        Nats::connect(self.relay.address()).await.unwrap().stream(&self.world.stream).await.unwrap()
    }

    async fn cut(&self) {
        self.relay.cut();
    }

    async fn ready(&self) -> usize {
        usize::try_from(self.world.info().await.num_pending).unwrap()
    }
}

idem_conformance::source_suite!(JetStream);
