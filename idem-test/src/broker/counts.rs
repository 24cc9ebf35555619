//! The counters of a queue.

/// The counters of a queue, and how many messages it holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Published messages.
    pub published: usize,
    /// Deliveries handed out, including redeliveries.
    pub deliveries: usize,
    /// Deliveries marked as redelivered.
    pub redeliveries: usize,
    /// Deliveries reported as new and stored before their first run.
    pub stored: usize,
    /// Acks that arrived in time.
    pub acks: usize,
    /// Releases that arrived in time.
    pub releases: usize,
    /// Acks and releases of deliveries that had already gone back to the queue.
    pub stale: usize,
    /// Messages that wait to be handed out.
    pub ready: usize,
    /// Deliveries that are handed out and not yet settled.
    pub unsettled: usize,
}
