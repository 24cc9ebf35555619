//! The worker, which consumes one source and runs its handlers.
//!
//! | file | contents |
//! |---|---|
//! | `builder`, `options` | the builder, its options, and the parts of a worker |
//! | `run` | the lifecycle: start, run, drain; the tasks of a running worker |
//! | `fitness`, `register` | the checks at the start, and the registration of the handlers |
//! | `receive` | receives deliveries; reopens the source after a failure; leaves the broker during an outage |
//! | `roster` | the rows of the table `workers`, for people: who runs, and the counts of the last hour |
//! | `housekeeping` | prunes claims, reads gauges, records that the worker is alive; the lag of the source |
//! | `workers`, `shutdown` | several workers in one process; the signals that ask a process to end |

mod builder;
mod fitness;
mod housekeeping;
mod options;
mod receive;
mod register;
mod roster;
mod run;
mod shutdown;
mod workers;

pub use builder::{NoHandlers, WithHandlers, Worker};
pub(crate) use register::register as register_handlers;
pub use roster::Roster;
pub(crate) use roster::{Counted, Member, Waiting};
pub use shutdown::shutdown_signal;
pub use workers::Workers;
