//! What the demo and the fault tests need of each broker, beside the source of idem: make, publish, look, remove.
//!
//! A new broker is one file that implements [`Broker`].

mod kafka;
mod nats;
mod rabbitmq;

use anyhow::Result;
use idem::Source;

pub use kafka::Kafka;
pub use nats::Nats;
pub use rabbitmq::RabbitMq;

/// How many messages may be on their way without a confirm.
const WINDOW: usize = 500;

/// A queue, stream or topic, seen by a client beside the workers.
///
/// Every call is an error where the broker cannot be reached or refuses it.
#[allow(async_fn_in_trait, reason = "nobody spawns these")]
pub trait Broker: Sized + Send + Sync + 'static {
    /// What its workers consume from.
    type Source: Source;

    /// The broker, as a command or a line of a test has it.
    const NAME: &'static str;

    /// The variable in the environment that says where the server is.
    const VARIABLE: &'static str;

    /// How many messages a first worker stores before it runs others directly: Kafka does not mark what comes again.
    const WARM_UP: usize = 0;

    /// A client of one that is there, or is not.
    async fn connect(address: &str, name: &str) -> Result<Self>;

    /// Makes an empty one. What was there of this name is deleted.
    async fn create(&self) -> Result<()>;

    /// Publishes in this order, and returns when the broker has confirmed each. None has an id of the broker's: one that
    /// is published again is one more.
    async fn publish(&self, payloads: &[Vec<u8>]) -> Result<()>;

    /// How many messages are not settled. RabbitMQ does not count those that a consumer has in hand.
    async fn left(&self) -> Result<u64>;

    /// Makes the broker forget the consumer and what it has settled, as an operator's mistake would. `false` where that
    /// can only be once nobody consumes.
    async fn forget(&self) -> Result<bool>;

    /// Makes again what was forgotten and no consumer makes by itself.
    async fn restore(&self) -> Result<()> {
        Ok(())
    }

    /// Removes it.
    async fn delete(&self) -> Result<()>;

    /// The line of a worker's `main` that is the broker's, with waits that a test can bear: a worker that was killed is
    /// noticed within seconds. The durable consumer or the group has the name of the stream or topic.
    async fn source(address: &str, name: &str) -> Result<Self::Source>;
}
