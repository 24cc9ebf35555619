//! The inbox: rows that run from the database.
//!
//! | file | contents |
//! |---|---|
//! | `runner` | finds due rows, fetches them and starts them |
//! | `poll_window` | how far back a poll or fetch searches |
//! | `rows` | runs rows: together as a batch, or one; a replayed one that has no key goes back through decode and key |
//! | `record` | records and reports what has become of a row |
//! | `orphans` | waits until other work has ended, and then fetches orphaned rows and runs them |
//! | `parked` | rows that wait here: for their codec, or for the record of their failure; the memory of rows |

mod orphans;
mod parked;
mod poll_window;
mod record;
mod rows;
mod runner;

pub(crate) use parked::ParkedRows;
pub(crate) use poll_window::PollWindow;
pub(crate) use runner::{free, run};
