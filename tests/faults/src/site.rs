//! The source of a test's messages: a separate queue, stream or topic on any of the brokers.

use idem_brokers::Broker;

use crate::relay::Relay;
use crate::{fresh, variable};

/// A queue, stream or topic used by one test, on a real server, which sources reach through a relay.
pub struct Site<B> {
    /// The address of the server.
    pub address: String,
    /// The name of the queue, stream or topic, and of the durable consumer or the group.
    pub name: String,
    broker: B,
    /// The relay through which sources connect.
    pub relay: Relay,
}

impl<B: Broker> Site<B> {
    /// Creates a site; `None` if there is no server to test against.
    pub async fn new() -> Option<Self> {
        let (address, name) = (variable(B::VARIABLE)?, fresh("idem-faults"));
        let broker = B::connect(&address, &name).await.unwrap();
        broker.create().await.unwrap();
        let relay = Relay::start(&address).await;
        Some(Self { address, name, broker, relay })
    }

    /// Publishes in this order, and returns once all messages are confirmed.
    pub async fn publish(&self, payloads: &[Vec<u8>]) {
        self.broker.publish(payloads).await.unwrap();
    }

    /// Returns another source, not yet opened.
    pub async fn source(&self) -> B::Source {
        B::source(&self.relay.url(&self.address), &self.name).await.unwrap()
    }

    /// Cuts the connections of all sources, which may reconnect at once.
    pub fn cut(&self) {
        self.relay.cut();
    }

    /// The number of unsettled messages, once all workers have ended.
    pub async fn left(&self) -> u64 {
        self.broker.left().await.unwrap()
    }

    /// Makes the broker forget the consumer. Returns `false` if that is possible only without active consumers.
    pub async fn forget(&self) -> bool {
        self.broker.forget().await.unwrap()
    }

    /// Recreates whatever was forgotten and is not recreated by a consumer.
    pub async fn restore(&self) {
        self.broker.restore().await.unwrap();
    }

    /// Removes the site.
    pub async fn end(self) {
        self.broker.delete().await.unwrap();
    }
}
