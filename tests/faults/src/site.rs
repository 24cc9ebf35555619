//! Where a test's messages come from: one queue, stream or topic of its own, on any of the brokers.

use std::time::Duration;

use idem::Source;
use idem_brokers::Broker;
use idem_test::{Broker as InProcessBroker, Publication, Queue};

use crate::relay::Relay;
use crate::{fresh, variable};

/// A queue, stream or topic of one test's own.
#[allow(async_fn_in_trait, reason = "nobody spawns these")]
pub trait Site: Sized + Send + Sync + 'static {
    /// What workers consume from.
    type Source: Source;

    /// How many messages a first worker stores before it runs others directly.
    const WARM_UP: usize;

    /// A new one; `None` where there is no server to test against.
    async fn new() -> Option<Self>;

    /// Publishes in this order, and returns when all is confirmed.
    async fn publish(&self, payloads: &[Vec<u8>]);

    /// One source more, not yet opened.
    async fn source(&self) -> Self::Source;

    /// Cuts the connections of all sources, which may connect again at once.
    fn cut(&self);

    /// How many messages are not settled, once all workers have ended.
    async fn left(&self) -> u64;

    /// Makes the broker forget the consumer. `false` where that can only be once nobody consumes.
    async fn forget(&self) -> bool;

    /// Makes again what was forgotten and no consumer makes by itself.
    async fn restore(&self);

    /// Removes it.
    async fn end(self);
}

/// A queue of the broker in the process.
pub struct InProcess(InProcessBroker);

/// It has a lease, so that slow handlers are put to the test.
const LEASE: Duration = Duration::from_secs(1);

impl Site for InProcess {
    type Source = Queue;

    const WARM_UP: usize = 0;

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

    /// There is nothing to be forgotten but the subscriptions.
    async fn forget(&self) -> bool {
        self.0.disconnect();
        true
    }

    async fn restore(&self) {}

    async fn end(self) {}
}

/// On a real server, which sources reach by way of a relay.
pub struct Real<B> {
    /// Where the server is.
    pub address: String,
    /// The name of the queue, stream or topic, and of the durable consumer or the group.
    pub name: String,
    broker: B,
    /// What sources reach it by.
    pub relay: Relay,
}

impl<B: Broker> Site for Real<B> {
    type Source = B::Source;

    const WARM_UP: usize = B::WARM_UP;

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
