//! The order that a worker keeps.

/// In which order a worker handles deliveries.
///
/// Where an order is promised, the deliveries of a lane are handled one after another: the next one begins when the one
/// before is processed or dead. A failing message is retried in its place, and its lane waits for it. What is replayed
/// later by hand runs out of order.
///
/// A source refuses what its broker cannot keep, when the worker starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ordering {
    /// None: whatever is there is handled at once.
    #[default]
    None,
    /// One lane for each partition of the source.
    Partition,
    /// One lane for each key of the broker's (Kafka's record key). Deliveries without one share a lane in each
    /// partition.
    Key,
    /// One lane for all of the queue. The broker must give it to one consumer at a time.
    Queue,
}
