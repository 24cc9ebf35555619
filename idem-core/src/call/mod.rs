//! External calls: rows of the inbox whose handlers call another system first. A call holds no transaction and no connection.
//!
//! | file | contents |
//! |---|---|
//! | `caller` | fetches rows whose calls are due, as many as may be made at once |
//! | `step` | what follows for a row that was fetched: call, ask, or neither |
//! | `run` | makes the call of one row, and waits for its reply, within the timeout, and for as long as its lease lasts |
//! | `result` | what follows from a reply: records and reports results |

mod caller;
mod result;
mod run;
mod step;

pub(crate) use caller::run;
