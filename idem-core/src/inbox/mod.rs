//! The inbox: rows that run from the database, and the operator's handling of dead letters.
//!
//! | file | contents |
//! |---|---|
//! | `runner` | finds due rows, takes them and starts them |
//! | `looks`, `memory` | how far back a poll or take searches, and how many bytes are taken |
//! | `row` | runs one row; a replayed one that has no key goes back through decode and key |
//! | `result` | records and reports the result of a row |
//! | `rows` | runs rows that were taken together as a batch |
//! | `suspects` | waits until other work has ended, and then fetches suspects and runs them |
//! | `parked` | rows that wait here: for their codec, or for the record of their failure |
//! | `operator` | list, replay, discard |

mod looks;
mod memory;
mod operator;
mod parked;
mod result;
mod row;
mod rows;
mod runner;
mod suspects;

pub(crate) use looks::Looks;
pub use operator::Inbox;
pub(crate) use operator::read_row;
pub(crate) use parked::ParkedRows;
pub(crate) use runner::{free, run};
