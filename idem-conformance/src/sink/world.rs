//! The requirements of the suite on a broker.

use idem_core::{Delivery, Outgoing, Sink, Source};

/// One queue, stream or topic of a broker, created for one test, and a relay between it and the sink that can cut and
/// hold the connections.
pub trait World: Sized + Send + Sync + 'static {
    /// The sink under test.
    type Sink: Sink;
    /// A source of what it publishes.
    type Source: Source;

    /// The size of a payload that the broker refuses, in bytes.
    const TOO_LARGE: usize;

    /// Creates a new, empty queue. Prints a line and returns `None` if the broker is not available and not required.
    fn make() -> impl Future<Output = Option<Self>> + Send;

    /// Returns a sink, not yet opened, whose connections go through the relay.
    fn sink(&self) -> impl Future<Output = Self::Sink> + Send;

    /// Returns the same sink, which publishes CloudEvents from this source.
    fn cloud_events(&self, source: &str) -> impl Future<Output = Self::Sink> + Send;

    /// Returns a sink of an exchange or a stream that does not exist, and the name that its error must have; `None` if
    /// the broker has no such thing.
    fn missing(&self) -> impl Future<Output = Option<(Self::Sink, String)>> + Send;

    /// Returns a source of the queue, not yet subscribed, which does not go through the relay.
    fn source(&self) -> impl Future<Output = Self::Source> + Send;

    /// The destination of the queue.
    fn to(&self) -> String;

    /// A destination that leads nowhere.
    fn unroutable(&self) -> String;

    /// Messages that the broker cannot carry, each with a part of the error's text. The value of a header must not be
    /// in the text.
    fn unpublishable(&self) -> Vec<(Outgoing, &'static str)>;

    /// The id of a delivery, where an idem worker looks for it by default.
    fn id(delivery: &Delivery) -> Option<String> {
        delivery.message_id().map(ToOwned::to_owned)
    }

    /// The event type of a delivery.
    fn event_type(delivery: &Delivery) -> Option<String>;

    /// The key of a delivery.
    fn key(delivery: &Delivery) -> Option<Vec<u8>>;

    /// Ends the connections of all sinks, as a dying broker does. New ones are accepted.
    fn cut(&self) -> impl Future<Output = ()> + Send;

    /// Stops to forward anything on all connections, or goes on.
    fn hold(&self, held: bool) -> impl Future<Output = ()> + Send;
}
