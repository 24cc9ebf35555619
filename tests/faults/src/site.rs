//! The source of a test's messages: a separate queue, stream or topic on any of the brokers.

use std::time::Duration;

use idem::Source;
use idem_brokers::Broker;
use idem_test::{Broker as InProcessBroker, Publication, Queue};

use crate::relay::Relay;
use crate::{fresh, variable};

/// A queue, stream or topic used by one test.
#[allow(async_fn_in_trait, reason = "nobody spawns these")]
pub trait Site: Sized + Send + Sync + 'static {
    /// The source of the workers.
    type Source: Source;

    /// How many messages a first worker stores before it runs others directly.
    const WARM_UP: usize;

    /// Whether settled messages may come once more after a cut.
    const POSITION: bool;

    /// Creates a site; `None` if there is no server to test against.
    async fn new() -> Option<Self>;

    /// Publishes in this order, and returns once all messages are confirmed.
    async fn publish(&self, payloads: &[Vec<u8>]);

    /// Returns another source, not yet opened.
    async fn source(&self) -> Self::Source;

    /// Cuts the connections of all sources, which may reconnect at once.
    fn cut(&self);

    /// The number of unsettled messages, once all workers have ended.
    async fn left(&self) -> u64;

    /// Makes the broker forget the consumer. Returns `false` if that is possible only without active consumers.
    async fn forget(&self) -> bool;

    /// Recreates whatever was forgotten and is not recreated by a consumer.
    async fn restore(&self);

    /// Removes the site.
    async fn end(self);
}

/// A queue of the in-process broker.
pub struct InProcess(InProcessBroker);

/// It has a lease, so that slow handlers are tested.
const LEASE: Duration = Duration::from_secs(1);

impl Site for InProcess {
    type Source = Queue;

    const WARM_UP: usize = 0;

    const POSITION: bool = false;

    async fn new() -> Option<Self> {
        let broker = InProcessBroker::new();
        broker.lease(Some(LEASE));
        Some(Self(broker))
    }

    async fn publish(&self, payloads: &[Vec<u8>]) {
        payloads.iter().for_each(|payload| self.0.publish("orders", Publication::new(payload.clone())));
    }

    async fn source(&self) -> Queue {
        self.0.queue("orders")
    }

    fn cut(&self) {
        self.0.disconnect();
    }

    async fn left(&self) -> u64 {
        let counts = self.0.queue("orders").counts();
        (counts.ready + counts.unsettled) as u64
    }

    /// There is nothing to forget but the subscriptions.
    async fn forget(&self) -> bool {
        self.0.disconnect();
        true
    }

    async fn restore(&self) {}

    async fn end(self) {}
}

/// A site on a real server, which sources reach through a relay.
pub struct Real<B> {
    /// The address of the server.
    pub address: String,
    /// The name of the queue, stream or topic, and of the durable consumer or the group.
    pub name: String,
    broker: B,
    /// The relay through which sources connect.
    pub relay: Relay,
}

impl<B: Broker> Site for Real<B> {
    type Source = B::Source;

    const WARM_UP: usize = B::WARM_UP;

    const POSITION: bool = B::POSITION;

    async fn new() -> Option<Self> {
        let (address, name) = (variable(B::VARIABLE)?, fresh("idem-faults"));
        let broker = B::connect(&address, &name).await.unwrap();
        broker.create().await.unwrap();
        let relay = Relay::start(&address).await;
        Some(Self { address, name, broker, relay })
    }

    async fn publish(&self, payloads: &[Vec<u8>]) {
        self.broker.publish(payloads).await.unwrap();
    }

    async fn source(&self) -> B::Source {
        B::source(&self.relay.address(&self.address), &self.name).await.unwrap()
    }

    fn cut(&self) {
        self.relay.cut();
    }

    async fn left(&self) -> u64 {
        self.broker.left().await.unwrap()
    }

    async fn forget(&self) -> bool {
        self.broker.forget().await.unwrap()
    }

    async fn restore(&self) {
        self.broker.restore().await.unwrap();
    }

    async fn end(self) {
        self.broker.delete().await.unwrap();
    }
}
