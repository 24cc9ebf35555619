//! What all lanes of a worker share. It knows nothing of what they do with it.

mod brake;
mod count;
mod decode;
mod defect;
mod extend;
mod flights;
mod gate;
mod health;
mod hold;
mod leases;
mod order;
mod outage;
mod pace;
mod preparations;
mod prepare;
mod queue;
mod refusals;
mod refused;
mod rows;
mod settings;
mod settle;
mod waits;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::{Mutex, Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::registry::Routes;
use crate::store::Identity;
use crate::telemetry::Gauges;
use crate::{BoxError, Delivery, Lag, Outcome, Store};

pub use gate::Gate;
pub use health::Health;

pub(crate) use brake::Brake;
pub(crate) use defect::{Defect, Unwinding};
pub(crate) use extend::{at, extended, extended_all, kept};
pub(crate) use flights::{Flight, Flights};
pub(crate) use gate::Isolated;
pub(crate) use hold::Hold;
pub(crate) use leases::Leases;
pub(crate) use order::{Arrival, Lanes, Place};
pub(crate) use outage::Outage;
pub(crate) use pace::Pace;
pub(crate) use preparations::Preparations;
pub(crate) use queue::Queue;
pub(crate) use refusals::Refusals;
pub(crate) use refused::{Held, UNANSWERED, unanswered};
pub(crate) use rows::Rows;
pub(crate) use settings::Settings;
pub(crate) use waits::{hold_wait, jittered, refused_wait};

/// What all lanes of a worker share.
pub(crate) struct Pipeline<S: Store> {
    pub(crate) store: S,
    pub(crate) consumer: String,
    pub(crate) system: &'static str,
    pub(crate) routes: Routes<S>,
    pub(crate) settings: Settings,
    pub(crate) flights: Flights,
    pub(crate) pace: Pace,
    pub(crate) gate: Gate,
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
    /// Rung when something was parked, so that the inbox need not wait for its poll.
    pub(crate) parked: Notify,
    /// The rows that ordered deliveries wait for.
    pub(crate) rows: Rows,
    pub(crate) lanes: Lanes,
    /// How many deliveries the broker was told about: the source is of use.
    pub(crate) settled: AtomicU64,
    /// The worker drains: what is not running is released.
    pub(crate) draining: CancellationToken,
    /// The patience of the drain has ended: what runs is cut off.
    pub(crate) stop: CancellationToken,
}

/// What one try of a delivery came to.
pub(crate) enum Step {
    /// The database has answered.
    Done(Outcome),
    /// It has, for a delivery of a lane, and the message is in the inbox, or may be: its lane waits for it.
    InRow(Outcome, Box<Identity>),
    /// It has not; the delivery is kept unsettled and tried again.
    Hold(Hold),
    /// It refuses what is written for this message, and works for others. Its handler has run and failed, or has not.
    Refused { error: BoxError, ran: bool },
    /// The codec has to prepare first; the delivery is kept unsettled, out of its lane.
    Unprepared,
    /// The run was cut off by the end of the worker.
    Stopped,
}

/// Called with each delivery and its outcome.
pub(crate) type Observer = Arc<dyn Fn(&Delivery, &Outcome) + Send + Sync>;
