//! The inbox: rows that run from the database, and the operator's handling of dead letters.

mod batch;
mod looks;
mod memory;
mod operator;
mod preparing;
mod rows;
mod run;
mod runner;
mod storing;
mod suspects;

pub use operator::Inbox;
pub(crate) use runner::run;
pub(crate) use storing::store;
