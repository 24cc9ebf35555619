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
mod start;
mod tasks;
mod unregistered;

pub use builder::{NoHandlers, WithHandlers, Worker};

pub(crate) use unregistered::Unregistered;
