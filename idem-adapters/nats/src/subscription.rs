//! The state of one subscription.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use idem_core::BackgroundTasks;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::pull::Arrival;

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
