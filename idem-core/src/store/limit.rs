//! Which due rows to fetch, for which handlers, and how many there are.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::{HandlerId, Row};

/// The kind of due rows to fetch. Runs without a result (starts, lost connections) decide which other work may run at
/// the same time.
// Exhaustive: a store that did not look for a new kind of row would leave those rows forever, so it must not compile.
// SQL repeats these limits: postgres/inbox_sql.rs, sqlite/inbox_sql.rs, sqlite/sql.rs, and the indexes of
// migrations/*/0001_tables.sql. They must change together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// Ordinary rows: no start, and at most 1 lost connection.
    Ordinary,
    /// Orphaned rows, which may have ended a process or a connection: 1 start, or none and at least 2 lost connections.
    /// No other row may run in the process. A killed process leaves many such rows, so direct deliveries continue while
    /// they run.
    Orphan,
    /// Orphaned rows with 2 or 3 starts, the second of them without other rows at the same time. Nothing else may run
    /// in the process.
    Alone,
    /// Rows in their [call phase](super::InboxRows), whatever the number of their calls: the call is about to be made.
    Calling,
}

/// A handler whose rows are fetched.
// Exhaustive: a store that ignored a part of it would call under no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchFor {
    /// The handler.
    pub handler: HandlerId,
    /// The lease of its rows. For calls it is longer than a call can take.
    pub lease: Duration,
    /// The name of its call, which is stored with a row whose first call it is. That of one whose provider knows no keys says so.
    /// Empty if no calls are fetched.
    pub call: Cow<'static, str>,
}

impl FetchFor {
    /// A handler whose rows are fetched to be run.
    pub fn new(handler: HandlerId, lease: Duration) -> Self {
        Self { handler, lease, call: Cow::Borrowed("") }
    }
}

/// Which due rows to fetch, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchLimit {
    /// Their kind.
    pub kind: RowKind,
    /// The maximum number of rows.
    pub rows: usize,
    /// The approximate maximum size of all rows together, which the last row may exceed.
    pub bytes: usize,
    /// Only rows that became due within this time, if that makes the search faster; `None`: all due rows.
    pub since: Option<Duration>,
}

/// How far back polling has to look, if that makes it faster; `None`: back to the oldest row. `LookBack::default()` looks
/// at everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LookBack {
    /// For ordinary rows.
    pub ordinary: Option<Duration>,
    /// For orphaned rows.
    pub orphan: Option<Duration>,
}

impl FetchLimit {
    /// At most this many rows of this kind, of any size.
    pub fn rows(kind: RowKind, rows: usize) -> Self {
        Self { kind, rows, bytes: usize::MAX, since: None }
    }
}

/// The rows of a fetch.
// Exhaustive: a store makes it.
#[derive(Debug, Clone)]
pub struct FetchedRows {
    /// The rows that were fetched.
    pub rows: Vec<Row>,
    /// When the store had its connection, and had not yet sent the statement by which the database dates the leases: none of them
    /// began before. A call has to be sent within a part of its lease, and counts from here, so that it loses nothing by a wait
    /// for the connection.
    pub since: Instant,
}

/// The pending work of a consumer's handlers.
// Exhaustive: a store that did not look for a new kind of work would leave those rows forever, so it must not compile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DueRows {
    /// An ordinary row is due.
    pub ordinary: bool,
    /// An orphaned row is due, with which no other row may run.
    pub orphan: bool,
    /// An orphaned row is due, with which nothing may run.
    pub alone: bool,
    /// A crashed row has to become a dead letter.
    pub crashed: bool,
}

/// The fill level of the inbox. A store outside this crate starts with `Stats::default()`, which is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of scheduled rows.
    pub scheduled: u64,
    /// The number of dead rows.
    pub dead: u64,
    /// How long the oldest due row has been due.
    pub oldest_due: Option<Duration>,
}
