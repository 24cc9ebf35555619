//! The worker, which consumes one source and runs its handlers.

mod builder;
mod drain;
mod fitness;
mod housekeeping;
mod lag;
mod lane;
mod leave;
mod options;
mod parts;
mod receive;
mod register;
mod reopen;
mod run;
mod shutdown;
mod start;
mod tasks;
mod unregistered;
mod workers;

pub use builder::{NoHandlers, WithHandlers, Worker};
pub use shutdown::shutdown_signal;
pub use workers::Workers;

pub(crate) use unregistered::Unregistered;
