//! The source suite over the in-process broker.

use idem_conformance::source::{Features, World};
use idem_test::{Broker, Publication, Queue};

struct InProcess(Broker);

impl World for InProcess {
    type Source = Queue;

    const FEATURES: Features = Features {
        message_id: true,
        assigns_ids: false,
        event_type: true,
        content_type: true,
        correlation: true,
        partition_key: true,
        grouped: false,
        produced_at: true,
        header_bytes: true,
        max_payload: None,
        redelivered: true,
        presumes: false,
        confirms: true,
        releases: true,
        survives: false,
        counts_released: true,
        counts_unsettled: false,
        lag: true,
    };

    async fn make() -> Option<Self> {
        Some(Self(Broker::new()))
    }

    fn subject(&self) -> Option<String> {
        Some("orders.paid".to_owned())
    }

    async fn publish(&self, publication: Publication) {
        self.0.publish("orders", publication.subject("orders.paid"));
    }

    async fn source(&self) -> Queue {
        self.0.queue("orders")
    }

    async fn cut(&self) {
        self.0.disconnect();
    }

    async fn ready(&self) -> usize {
        self.0.queue("orders").counts().ready
    }
}

idem_conformance::source_suite!(InProcess);
