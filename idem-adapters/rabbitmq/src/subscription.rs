//! The state of a subscription, and the time limits of its steps.

use std::time::Duration;

/// The state of one subscription, made by `subscribe`.
#[derive(Clone, Copy)]
pub(crate) struct Subscription {
    /// Whether it may still be asked for deliveries.
    pub(crate) live: bool,
    /// Whether the deliveries of each queue share an ordering key.
    pub(crate) ordered: bool,
    /// How many deliveries of each queue may be unsettled.
    pub(crate) max_unsettled: u16,
    /// Which of the hosts it is connected to.
    pub(crate) host: usize,
}

/// The limit to what a broker that does not answer can delay a shutdown by.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);

/// The time limit for all questions about one queue and its subscription. lapin waits forever for an answer that its connection
/// has lost.
pub(crate) const SUBSCRIBE: Duration = Duration::from_secs(60);
