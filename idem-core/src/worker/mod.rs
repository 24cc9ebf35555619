//! The worker: the running loop of one source and its handlers.

mod builder;
mod fitness;
mod housekeeping;
mod lag;
mod lane;
mod leave;
mod receive;
mod reopen;
mod run;
mod unregistered;

pub use builder::{Bare, Staffed, Worker};

pub(crate) use unregistered::Unregistered;
