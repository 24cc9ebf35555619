//! What has happened at a queue.

/// What has happened at a queue so far, and what is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that were published.
    pub published: usize,
    /// Deliveries that were handed out, redeliveries included.
    pub deliveries: usize,
    /// Deliveries that were marked as redelivered.
    pub redeliveries: usize,
    /// Deliveries of which it was said that they had no claim and were stored before their first run.
    pub stored: usize,
    /// Acks that arrived in time.
    pub acks: usize,
    /// Releases that arrived in time.
    pub releases: usize,
    /// Acks and releases of deliveries that had gone back already.
    pub stale: usize,
    /// Messages that wait to be handed out.
    pub ready: usize,
    /// Deliveries that are handed out and not settled.
    pub unsettled: usize,
}
