//! The worker: the running loop of one source and its handlers.

mod ahead;
mod brake;
mod builder;
mod defect;
mod fitness;
mod flights;
mod gate;
mod health;
mod housekeeping;
mod lag;
mod lane;
mod leave;
mod order;
mod outage;
mod queue;
mod receive;
mod refused;
mod reopen;
mod rows;
mod run;
mod settings;
mod unregistered;
mod waiting;
mod waits;

pub use builder::{Bare, Staffed, Worker};
pub use gate::Gate;
pub(crate) use gate::Isolated;
pub use health::Health;

pub(crate) use brake::Brake;
pub(crate) use defect::{Defect, Unwinding};
pub(crate) use flights::{Flight, Flights};
pub(crate) use lane::{Arrival, at, extended, extended_all};
pub(crate) use order::{Lanes, Place};
pub(crate) use outage::Outage;
pub(crate) use queue::Queue;
pub(crate) use refused::{Refused, UNANSWERED, unanswered};
pub(crate) use rows::Rows;
pub(crate) use settings::{RouteBy, Settings};
pub(crate) use unregistered::Unregistered;
pub(crate) use waiting::{RowWait, Waiting};
pub(crate) use waits::{hold_wait, refused_wait};

/// Why a delivery is kept unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Another transaction has the claim.
    Busy,
    /// The database refuses what is written for it, and works for others.
    Refused,
    /// There was no answer to a statement of idem's own.
    Lost,
    /// The database cannot be used.
    Outage,
    /// The connection was lost under the handler, or COMMIT was not answered.
    Broke,
    /// It is unfit, and consumption is paused because too many were.
    Unfit,
    /// Nothing is in the way any more.
    Again,
}
