//! The state of one subscription.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, SystemTime};

use idem_core::BackgroundTasks;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::pull::Arrival;

/// When the stream and the consumer were created. A recreated stream numbers its messages from 1 again, so an earlier
/// delivery's number would refer to another message. With a recreated consumer, it still refers to the same message.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) stream: SystemTime,
    pub(crate) consumer: SystemTime,
}

impl Made {
    /// Returns whether the consumer was created at `made`. A server of version 2.9 reports another time after its
    /// restart, by a fraction of a millisecond.
    pub(crate) fn consumer_is(self, made: SystemTime) -> bool {
        let apart = made.duration_since(self.consumer).unwrap_or_else(|error| error.duration());
        apart < Duration::from_secs(1)
    }
}

/// The state of one subscription, created by `subscribe`.
pub(crate) struct Subscription {
    pub(crate) arrivals: UnboundedReceiver<Arrival>,
    pub(crate) stop: CancellationToken,
    pub(crate) puller: BackgroundTasks,
    pub(crate) consumer: String,
    /// The ack wait of its deliveries.
    pub(crate) wait: Duration,
    /// Whether limits of the stream delete messages that were never handled.
    pub(crate) deletes: bool,
    /// How many of the unreadable messages that it began with are unsettled.
    pub(crate) first: Arc<AtomicUsize>,
    /// How many deliveries may be unsettled, if the consumer's limit is why these are fewer than the worker asked for.
    pub(crate) room: Option<usize>,
    /// Whether more deliveries may arrive.
    pub(crate) live: bool,
}
