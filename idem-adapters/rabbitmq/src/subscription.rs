//! The state of a subscription, and the time limits of its steps.

use std::time::Duration;

/// The state of one subscription, made by `subscribe`.
#[derive(Clone, Copy)]
pub(crate) struct Subscription {
    /// Whether it may still return deliveries.
    pub(crate) live: bool,
    /// Whether the deliveries of each queue share an ordering key.
    pub(crate) ordered: bool,
    /// The index of the host that it is connected to.
    pub(crate) host: usize,
}

/// The longest time that an unresponsive broker can delay a shutdown.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);

/// The time limit for all requests for one queue and its subscription. lapin waits forever for an answer if its
/// connection is lost.
pub(crate) const SUBSCRIBE: Duration = Duration::from_secs(60);
