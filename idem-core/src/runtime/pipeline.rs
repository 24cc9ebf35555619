//! What all lanes of a worker share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::{Mutex, Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::registry::Routes;
use crate::telemetry::Gauges;
use crate::{Lag, Store};

use super::brake::Brake;
use super::defect::Defect;
use super::gate::SuspectLock;
use super::health::Health;
use super::key_queue::KeyQueue;
use super::leases::Leases;
use super::outage::Outage;
use super::pace::BatchThrottle;
use super::preparations::Preparations;
use super::refusals::Refusals;
use super::rows::Rows;
use super::settings::Settings;

/// What all lanes of a worker share.
pub(crate) struct Pipeline<S: Store> {
    pub(crate) store: S,
    pub(crate) consumer: String,
    pub(crate) system: &'static str,
    pub(crate) routes: Routes<S>,
    pub(crate) settings: Settings,
    /// The keys that are worked on: of the deliveries of one, one at a time.
    pub(crate) key_locks: KeyQueue,
    pub(crate) pace: BatchThrottle,
    pub(crate) gate: SuspectLock,
    /// The rows of the inbox that wait here for their run.
    pub(crate) leases: Leases,
    /// The rows that the database refuses.
    pub(crate) refusals: Refusals,
    /// What codecs fetch for rows of the inbox.
    pub(crate) preparations: Preparations,
    /// The inbox's own statements are asked one at a time, on one connection.
    pub(crate) own_statements: Mutex<()>,
    pub(crate) outage: Arc<Outage>,
    pub(crate) health: Health,
    pub(crate) brake: Brake,
    pub(crate) defect: Defect,
    pub(crate) gauges: Gauges,
    /// Asks how much waits at the broker, while there is a subscription that tells.
    pub(crate) lag: watch::Sender<Option<Lag>>,
    /// Room for those that are stored alone: that many connections are kept for them beside the lanes.
    pub(crate) alone: Semaphore,
    /// Rung when something was scheduled, so that the inbox need not wait for its poll.
    pub(crate) scheduled: Notify,
    /// The rows that ordered deliveries wait for.
    pub(crate) rows: Rows,
    /// The lanes of the order, each with the deliveries that are not settled yet.
    pub(crate) order: KeyQueue,
    /// How many deliveries the broker was told about: the source is of use.
    pub(crate) settled: AtomicU64,
    /// The worker drains: what is not running is released.
    pub(crate) draining: CancellationToken,
    /// The patience of the drain has ended: what runs is cut off.
    pub(crate) stop: CancellationToken,
}
