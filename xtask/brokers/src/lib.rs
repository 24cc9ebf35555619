//! The broker operations that the demo and the fault tests need in addition to idem's source: create, publish, inspect,
//! remove.
//!
//! A new broker is one file that implements [`Broker`].

mod kafka;
mod nats;
mod rabbitmq;
mod sqs;

use std::time::Duration;

use anyhow::Result;
use idem::Source;
use idem::adapter::Sink;
use idem_services::Instance;

pub use kafka::Kafka;
pub use nats::Nats;
pub use rabbitmq::RabbitMq;
pub use sqs::{Recording, Sqs};

/// How long a broker with a limit keeps messages, unless another time is given.
const KEPT: Duration = Duration::from_secs(48 * 3600);

/// The maximum number of unconfirmed messages.
const WINDOW: usize = 500;

/// A queue, stream or topic, as seen by a client other than the workers.
///
/// Every call fails if the broker cannot be reached or rejects the request.
#[allow(async_fn_in_trait, reason = "nobody spawns these")]
pub trait Broker: Sized + Send + Sync + 'static {
    /// The source that its workers consume from.
    type Source: Source;

    /// The sink that its relays publish to.
    type Sink: Sink;

    /// The broker's name in commands and output lines.
    const NAME: &'static str;

    /// The environment variable that holds the server's address.
    const VARIABLE: &'static str;

    /// The name of the queue, stream or topic to which relays publish, and which keeps the order of each key.
    const RELAYED: &'static str = "idem-demo-relayed";

    /// Starts a private server. Blocks.
    const START: fn() -> Result<Instance>;

    /// How many messages a first worker stores before it runs others directly: Kafka does not mark redeliveries.
    const WARM_UP: usize = 0;

    /// A commit that is sent again after a cut may put the position of the consumers back, and messages come once more.
    const POSITION: bool = false;

    /// Returns a client for the queue, stream or topic of this name, which may not exist yet.
    async fn connect(address: &str, name: &str) -> Result<Self>;

    /// Creates an empty one. An existing one of this name is deleted.
    async fn create(&self) -> Result<()> {
        self.create_keeping(KEPT).await
    }

    /// Creates an empty one that keeps messages for this long. RabbitMQ keeps them until they are settled.
    async fn create_keeping(&self, kept: Duration) -> Result<()>;

    /// Creates an empty one of which [`recorded`](Self::recorded) can be asked, and to which a
    /// [`recording_sink`](Self::recording_sink) publishes.
    async fn create_recording(&self) -> Result<()> {
        self.create().await
    }

    /// Returns all messages that have arrived, copies included and whether they are settled or not, in the order in
    /// which they arrived; on Kafka and SQS in that order within each partition or group. Can be asked once.
    async fn recorded(&self) -> Result<Vec<Vec<u8>>>;

    /// Publishes in this order, if the broker has one, and returns when it has confirmed each message. No message has a
    /// message id of its producer, so publishing a payload again creates another message.
    async fn publish(&self, payloads: &[Vec<u8>]) -> Result<()>;

    /// Returns the number of unsettled messages. RabbitMQ does not count those that a consumer holds.
    async fn left(&self) -> Result<u64>;

    /// Makes the broker forget the consumer and its settled messages, as an operator's mistake would. Returns `false`
    /// if this is possible only without active consumers.
    async fn forget(&self) -> Result<bool>;

    /// Recreates what was forgotten and is not recreated by a consumer.
    async fn restore(&self) -> Result<()> {
        Ok(())
    }

    /// Deletes it.
    async fn delete(&self) -> Result<()>;

    /// Returns the source as in a worker's `main`, with timeouts short enough for tests: a killed worker is noticed
    /// within seconds. The durable consumer or the group has the name of the stream or topic.
    async fn source(address: &str, name: &str) -> Result<Self::Source>;

    /// Returns the source with the defaults of its adapter, for measurements.
    async fn default_source(address: &str, name: &str) -> Result<Self::Source> {
        Self::source(address, name).await
    }

    /// Returns the sink, whose messages reach the queue, stream or topic if that is their destination.
    async fn sink(address: &str) -> Result<Self::Sink>;

    /// Returns the sink whose messages are also recorded, if their destination is the one of this name.
    async fn recording_sink(address: &str, _name: &str) -> Result<Self::Sink> {
        Self::sink(address).await
    }
}
