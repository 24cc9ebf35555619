//! The brokers: what the demo needs of each, beside the source that its workers take.

mod rabbitmq;

use anyhow::Result;
use idem::Source;

pub(crate) use rabbitmq::RabbitMq;

use crate::plan::Order;

/// The queue's, stream's or topic's name. There is one demo at a time on a database, so that it need not be unique.
pub(crate) const NAME: &str = "idem-demo";

/// How many messages may be on their way without a confirm.
const WINDOW: usize = 500;

/// A queue, stream or topic, seen by a client beside the workers.
pub(crate) trait Broker: Sized {
    /// What the demo calls it, for itself and its workers.
    const COMMAND: &'static str;

    /// The variable in the environment that says where the server is.
    const VARIABLE: &'static str;

    /// An empty one. What an earlier demo has left is deleted.
    async fn new(address: &str) -> Result<Self>;

    /// Publishes in this order, and returns when the broker has confirmed each.
    async fn publish(&self, orders: &[Order]) -> Result<()>;

    /// How many messages are not settled, those in the hands of workers included where the broker counts them.
    async fn left(&self) -> Result<u64>;

    /// Removes it.
    async fn delete(self) -> Result<()>;

    /// The line of a worker's `main` that is the broker's.
    async fn source(address: &str) -> Result<impl Source>;
}
