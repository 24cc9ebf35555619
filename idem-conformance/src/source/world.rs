//! The requirements of the suite on a broker.

use idem_core::Source;

use idem_test::Publication;

/// One queue of a broker, created for one test.
///
/// ```
/// # use idem_conformance::source::{Features, World};
/// # use idem_test::{Broker, Publication, Queue};
/// /// The broker inside the process. A world of a server makes a queue with a unique name, and deletes it when dropped.
/// struct InProcess(Broker);
///
/// impl World for InProcess {
///     type Source = Queue;
///     const FEATURES: Features = Features {
///         message_id: true,
///         redelivered: true,
///         // .. and each other field.
///         # event_type: true, content_type: true, correlation: true, partition_key: true, grouped: false, produced_at: true,
///         # header_bytes: true, presumes: false, assigns_ids: false, max_payload: None, confirms: true, releases: true, survives: false, counts_released: true,
///         # counts_unsettled: false, lag: true,
///     };
///
///     async fn make() -> Option<Self> { Some(Self(Broker::new())) }
///     async fn publish(&self, publication: Publication) { self.0.publish("orders", publication) }
///     async fn source(&self) -> Queue { self.0.queue("orders") }
///     async fn cut(&self) { self.0.disconnect() }
///     async fn ready(&self) -> usize { self.0.queue("orders").counts().ready }
/// }
///
/// idem_conformance::source_suite!(InProcess);
/// ```
pub trait World: Sized + Send + Sync + 'static {
    /// The source under test.
    type Source: Source;

    /// The features of the broker.
    const FEATURES: Features;

    /// Creates a new, empty queue. Prints a line and returns `None` if the broker is not available and not required.
    fn make() -> impl Future<Output = Option<Self>> + Send;

    /// The subject of published messages, if the broker has subjects.
    fn subject(&self) -> Option<String> {
        None
    }

    /// Publishes a message. It is in the queue when the future is ready.
    fn publish(&self, publication: Publication) -> impl Future<Output = ()> + Send;

    /// Makes the queue one that two sources can share, if it is not one from the start.
    fn share(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Returns a source of the queue, not yet opened.
    fn source(&self) -> impl Future<Output = Self::Source> + Send;

    /// Cuts the connections of all sources, as a dying broker does.
    fn cut(&self) -> impl Future<Output = ()> + Send;

    /// How many messages wait to be handed out, by the broker's count.
    fn ready(&self) -> impl Future<Output = usize> + Send;
}

/// The features of a broker.
// Exhaustive: the suite tests what a world states, so a world that does not state a new feature must not compile.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// It carries a message id beside the headers.
    pub message_id: bool,
    /// It gives an id to each message whose producer gave none.
    pub assigns_ids: bool,
    /// It carries an event type beside the headers.
    pub event_type: bool,
    /// It carries a content type: beside the headers, or as the header `content-type`.
    pub content_type: bool,
    /// It carries a correlation id and a reply address beside the headers.
    pub correlation: bool,
    /// It carries a key by which it chooses a partition.
    pub partition_key: bool,
    /// It hands messages out in groups, each with such a key, which is text; the world gives a message without one a group
    /// of its own. There is order within a group only, and nothing of a group comes while one of it is unsettled.
    pub grouped: bool,
    /// It carries a producer timestamp.
    pub produced_at: bool,
    /// A header value may hold any bytes, not only text.
    pub header_bytes: bool,
    /// The size of the largest payload that it carries, in bytes, if that is less than the suite sends elsewhere.
    pub max_payload: Option<usize>,
    /// It marks redeliveries.
    pub redelivered: bool,
    /// It cannot tell redeliveries apart, and so marks the first deliveries of each subscription.
    pub presumes: bool,
    /// It confirms acks.
    pub confirms: bool,
    /// It takes a single delivery back and redelivers it at once. Otherwise it redelivers when the subscription has
    /// ended.
    pub releases: bool,
    /// A delivery outlives its connection: after a loss the receiver still holds it, can settle it, and it is not
    /// redelivered.
    pub survives: bool,
    /// Its ready count includes released messages.
    pub counts_released: bool,
    /// Its ready count includes unsettled deliveries.
    pub counts_unsettled: bool,
    /// The source reports its [`lag`](Source::lag).
    pub lag: bool,
}
