//! The state of one subscription.

use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::pull::Arrival;

/// When stream and consumer were made. A stream of the same name that was made later counts from 1 again, so that the
/// number of a delivery would be that of another message; with a consumer it is still that of the same.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) stream: SystemTime,
    pub(crate) consumer: SystemTime,
}

impl Made {
    /// A server of 2.9 tells another time after its restart, by a fraction of a millisecond.
    pub(crate) fn consumer_is(self, made: SystemTime) -> bool {
        let apart = made.duration_since(self.consumer).unwrap_or_else(|error| error.duration());
        apart < Duration::from_secs(1)
    }
}

/// The state of one subscription, made by `subscribe`.
pub(crate) struct Subscription {
    pub(crate) arrivals: UnboundedReceiver<Arrival>,
    pub(crate) stop: CancellationToken,
    pub(crate) puller: JoinSet<()>,
    pub(crate) consumer: String,
    /// How long its deliveries stay ours.
    pub(crate) wait: Duration,
    /// Whether deliveries may still come.
    pub(crate) live: bool,
}
