//! External calls: rows of the inbox whose handlers call another system first. A call holds no transaction and no connection.
//!
//! | file | contents |
//! |---|---|
//! | `caller` | takes rows whose calls are due, as many as may be made at once |
//! | `step` | what follows for a row that was taken: call, ask, or neither |
//! | `taken` | for how long a row has been taken, and what may still be sent |
//! | `run` | makes the call of one row |
//! | `reply` | waits for a reply, within the timeout and the lease |
//! | `outcome` | what follows from a reply |
//! | `result` | records and reports results |

mod caller;
mod outcome;
mod reply;
mod result;
mod run;
mod step;
mod taken;

pub(crate) use caller::run;
