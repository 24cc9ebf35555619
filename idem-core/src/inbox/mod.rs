//! The inbox: what runs from the database, and what an operator does with dead letters.

mod operator;
mod run;
mod runner;

pub use operator::Inbox;
pub(crate) use runner::{jittered, run};
