//! The state that all lanes of a worker share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{Mutex, Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::inbox::ParkedRows;
use crate::key_value::HeldLeases;
use crate::routes::Routes;
use crate::store::{HandlerId, OutboxId};
use crate::telemetry::ConsumerMetrics;
use crate::worker::Member;
use crate::{Engine, Key, Lag, Source};

use super::batch_throttle::BatchThrottle;
use super::defect::Defect;
use super::health::{Health, KillSwitch};
use super::isolation_lock::IsolationLock;
use super::key_queue::KeyQueue;
use super::leases::Leases;
use super::outage::Outage;
use super::persist::Rate;
use super::prepare::Preparations;
use super::settings::Settings;

/// The state that all lanes of a worker share.
pub(crate) struct Pipeline<S: Engine> {
    pub(crate) store: S,
    pub(crate) consumer: String,
    pub(crate) system: &'static str,
    pub(crate) routes: Routes<S>,
    pub(crate) settings: Settings,
    /// The outbox of the consumer, if a handler stages messages.
    pub(crate) outbox: Option<OutboxId>,
    /// Whether more messages of the outbox wait to be published than the user permits.
    pub(super) full_outbox: watch::Sender<bool>,
    /// Whether a handler has staged a local message.
    pub(crate) hands_over: AtomicBool,
    /// The keys in progress. Deliveries of one key run one at a time.
    pub(crate) key_locks: KeyQueue,
    pub(crate) throttle: BatchThrottle,
    pub(crate) isolation_lock: IsolationLock,
    /// The rows of the inbox that wait here for their run.
    pub(crate) leases: Leases,
    /// The leases of messages in a key-value store.
    pub(crate) held: HeldLeases,
    /// The rows of the inbox that wait here for something else.
    pub(crate) parked_rows: ParkedRows,
    /// The log lines about rows that are left to another version of the service.
    pub(crate) left_to_callers: Rate,
    /// The log lines about calls that could not begin in time.
    pub(crate) late_calls: Rate,
    /// Which messages prepare their codecs.
    pub(crate) preparations: Preparations,
    /// Serializes the inbox's own statements, which use one connection.
    pub(crate) own_statements: Mutex<()>,
    pub(crate) outage: Arc<Outage>,
    pub(crate) health: Health,
    pub(crate) kill_switch: KillSwitch,
    pub(crate) defect: Defect,
    pub(crate) metrics: ConsumerMetrics,
    /// The worker in the table `workers`.
    pub(crate) member: Member,
    /// Reads the number of messages that wait at the broker. `None` while there is no subscription that reports it.
    pub(crate) lag: watch::Sender<Option<Lag>>,
    /// Notified when something was scheduled, so that the inbox need not wait for its next poll.
    pub(crate) scheduled: Notify,
    /// The same for rows whose handlers make an external call.
    pub(crate) calls_due: Notify,
    /// Notifies ordered deliveries, which wait for their rows, of each row that has run in this process, whatever its result.
    pub(crate) ran: broadcast::Sender<(HandlerId, Key)>,
    /// Held while one of them queries the database, so that any number of them needs only one connection.
    pub(crate) poll: Mutex<()>,
    /// The ordering keys, each with its deliveries that are not settled yet.
    pub(crate) order: KeyQueue,
    /// The worker drains: deliveries that are not running are released.
    pub(crate) draining: CancellationToken,
    /// The shutdown timeout has elapsed: running work is cancelled.
    pub(crate) stop: CancellationToken,
}

/// How many rows that have run may wait to be reported to a delivery that waits for one. If there are more, it polls for its own.
/// Deliveries poll one after another, so many rows run before the last one of hundreds hears of any.
const RAN: usize = 1024;

impl<S: Engine> Pipeline<S> {
    pub(crate) fn new(
        consumer: String,
        store: S,
        source: &impl Source,
        routes: Routes<S>,
        outbox: Option<OutboxId>,
        settings: Settings,
        health: Health,
    ) -> Self {
        let unsettled = settings.unsettled().saturating_mul(source.queues().max(1));
        let (roster, window) = (&store.about().roster, source.replay_window());
        let member = roster.join(("worker", &consumer), &settings.version, window, &health);
        Self {
            system: source.system(),
            routes,
            outbox,
            full_outbox: watch::Sender::default(),
            hands_over: AtomicBool::default(),
            key_locks: KeyQueue::default(),
            throttle: BatchThrottle::new(settings.batch),
            isolation_lock: settings.isolation_lock.clone(),
            leases: Leases::default(),
            held: HeldLeases::default(),
            parked_rows: ParkedRows::default(),
            left_to_callers: Rate::default(),
            late_calls: Rate::default(),
            preparations: Preparations::default(),
            own_statements: Mutex::default(),
            outage: Arc::new(Outage::new(health.clone(), unsettled)),
            kill_switch: KillSwitch::new(settings.undeliverable_limit, health.clone()),
            health,
            defect: Defect::default(),
            metrics: ConsumerMetrics::new(&consumer),
            member,
            lag: watch::Sender::new(source.lag()),
            scheduled: Notify::new(),
            calls_due: Notify::new(),
            ran: broadcast::Sender::new(RAN),
            poll: Mutex::default(),
            order: KeyQueue::default(),
            draining: CancellationToken::new(),
            stop: CancellationToken::new(),
            settings,
            consumer,
            store,
        }
    }

    /// Lets the inbox look for rows at once.
    pub(crate) fn wake_inbox(&self) {
        self.scheduled.notify_one();
        self.calls_due.notify_one();
    }
}
