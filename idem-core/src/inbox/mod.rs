//! The inbox: what runs from the database, and what an operator does with dead letters.

mod batch;
mod operator;
mod run;
mod runner;
mod storing;

pub use operator::Inbox;
pub(crate) use runner::{jittered, run};
pub(crate) use storing::store;
