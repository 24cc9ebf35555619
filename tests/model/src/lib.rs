//! A model of idem's protocol, whose states are all searched. With all rules every property holds, and for each rule that
//! is broken on purpose the search must find how a message is lost or doubled, or dies of it. `cargo xtask model` runs it.
//!
//! | module | its steps |
//! |---|---|
//! | `messages::{broker, claims, classify, storing}` | a delivery: claim, handler, guard, commit, ack; or it is stored |
//! | `messages::rows` | an inbox row: fetch, run, record |
//! | `messages::isolation` | the two locks of a process, and what a row with starts needs of them; rows that are dead after four |
//! | `messages::{crash, outage, prune, operator}` | what happens to them: a process ends, a database is away, time passes, claims are pruned, an operator acts |
//! | `patience` | how long a process waits for such a lock |
//! | `batch` | several messages in one transaction |
//! | `low_water` | the id from which a relay reads on, beside transactions that commit late |
//! | `relay::{staging, lease, publish}` | the outbox: staged, published in the order of each key, deleted |
//! | `key_value` | the record of a message in a store without transactions, and its lease |
//! | `calls::{row, provider, operator}` | calls to a provider outside of the transaction, under a key that the row keeps; replays and backups |
//!
//! `check` checks that what real workers and relays did is a path of the model: `--check FILE` reads a trace, of which the workers
//! of this package's tests and of the fault tests write some. `traces` has the search, and `messages::traces`, `calls::traces`
//! and `relay::traces` say which line each step of a part is.
//!
//! Traces are not checked of prune, orders, natural handlers, delivery to several handlers, local messages, rows without a key
//! and preparations; nor of the demos, whose three workers could share a key, while the model has two at a time.
//!
//! In each part, `state` is what can change, `defect` lists the rules that can be broken, and `world` or `worlds` has what
//! is searched: messages, and how many failures of each kind may come. `property` lists what must hold.
//!
//! Left out, because a smaller model says nothing about them or they have tests of their own: rows without a key, replay
//! under another key, delivery to several handlers, batches of rows, local messages, the keys
//! that a relay's reads leave out, circuit breakers, and every delay. A worker that waits may wait
//! for ever here, so that no order of steps is left out.

mod batch;
mod calls;
mod case;
mod check;
mod defect;
mod key_value;
mod low_water;
mod messages;
mod patience;
mod property;
mod relay;
mod report;
mod search;
mod step;
mod traces;

pub use check::{Checked, check_trace};

/// Searches all cases, and prints a line for each. `small`: with few enough failures for CI. `traces`: with the steps to
/// each violation. Returns how many cases are not as they must be.
pub fn search(small: bool, traces: bool) -> usize {
    report::report(&case::cases(small), traces)
}
