//! The inbox: what runs from the database, and what an operator does with dead letters.

mod batch;
mod conclude;
mod leases;
mod looks;
mod memory;
mod operator;
mod refusals;
mod run;
mod runner;
mod storing;
mod suspects;

pub(crate) use leases::Leases;
pub use operator::Inbox;
pub(crate) use refusals::Refusals;
pub(crate) use runner::{jittered, run};
pub(crate) use storing::store;
