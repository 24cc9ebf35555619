//! Inbox rows, and the arguments and results of their queries.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::{Delivery, Reason};

use super::Identity;

/// A row to insert.
#[derive(Debug)]
#[non_exhaustive]
pub struct NewRow<'a> {
    /// The identity of the message.
    pub identity: &'a Identity,
    /// Its payload, headers and facts.
    pub delivery: &'a Delivery,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The reason for which it is dead, or the time until it is due.
    pub state: Result<Duration, Reason>,
    /// The error of the last attempt; empty if there was none.
    pub error: &'a str,
}

impl<'a> NewRow<'a> {
    /// A row of a message that has no failed attempt and no error.
    pub fn new(identity: &'a Identity, delivery: &'a Delivery, state: Result<Duration, Reason>) -> Self {
        Self { identity, delivery, attempts: 0, state, error: "" }
    }

    /// Sets the number of failed attempts and the error of the last one.
    pub fn with_attempts(self, attempts: u32, error: &'a str) -> Self {
        Self { attempts, error, ..self }
    }
}

/// An inbox row. A store outside this crate starts with [`Row::new`] and sets the fields that it has read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Row {
    /// The id of the row.
    pub id: i64,
    /// The identity of the message.
    pub identity: Identity,
    /// The handler's name; empty if no handler is known.
    pub handler: String,
    /// The message as it was delivered.
    pub delivery: Delivery,
    /// Set while the row is taken.
    pub token: Option<Uuid>,
    /// Runs started since the last result. A running one is counted; that of a reserved suspect is not.
    pub starts: u32,
    /// The number of failed attempts.
    pub attempts: u32,
    /// Runs since the last result that lost their database connection.
    pub breaks: u32,
    /// How often the message was delivered, including the first time.
    pub sightings: u64,
    /// Why it is dead; `None` while it is scheduled.
    pub reason: Option<Reason>,
    /// The error of the last attempt.
    pub error: String,
    /// When it was stored.
    pub created_at: SystemTime,
    /// When it runs, or when its lease ends.
    pub due_at: SystemTime,
    /// When it became a dead letter.
    pub died_at: Option<SystemTime>,
    /// How long it had been due when it was taken; set only by [`take`](crate::store::InboxRows::take).
    pub waited: Option<Duration>,
}

impl Row {
    /// A row that was delivered once, has not run, is not taken, and has been due since it was stored.
    pub fn new(id: i64, identity: Identity, handler: String, delivery: Delivery, created_at: SystemTime) -> Self {
        Self {
            id,
            identity,
            handler,
            delivery,
            token: None,
            starts: 0,
            attempts: 0,
            breaks: 0,
            sightings: 1,
            reason: None,
            error: String::new(),
            created_at,
            due_at: created_at,
            died_at: None,
            waited: None,
        }
    }

    /// Returns what must not run concurrently with it.
    pub fn isolation(&self) -> Isolation {
        match (self.starts, self.breaks) {
            (2.., _) => Isolation::Process,
            (1, _) | (_, 2..) => Isolation::Inbox,
            _ => Isolation::None,
        }
    }

    /// Its approximate memory usage.
    pub fn bytes(&self) -> usize {
        self.delivery.bytes()
    }
}

/// What must not run concurrently with a row.
// Exhaustive, like `Kind`: a store that treated a new case like one of these would run a row beside others that it can
// take down with it, so it must not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Nothing: it is an ordinary row.
    None,
    /// Other inbox rows in its process: it has 1 start without a result, or at least 2 breaks. A killed process leaves
    /// many such rows, so direct deliveries continue while they run.
    Inbox,
    /// Anything in its process: it has at least 2 starts without a result, the second of them without other rows beside
    /// it.
    Process,
}

/// Which due rows to take.
// Exhaustive, see `Isolation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ordinary rows: no start, and at most 1 break. Taking them counts their start.
    Ordinary,
    /// Suspects, which may have ended a process or a connection: 1 to 3 starts, or at least 2 breaks (and fewer than 4
    /// starts). They are only reserved: [`count_start`](crate::store::InboxRows::count_start) counts the start.
    Suspect,
}

/// How many rows to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// The maximum number of rows.
    pub rows: usize,
    /// The approximate maximum size of all rows together, which the last row may exceed.
    pub bytes: usize,
    /// Only rows that became due within this time, if that makes the search faster; `None`: all due rows.
    pub since: Option<Duration>,
}

/// How far back polling has to look, if that makes it faster; `None`: back to the oldest row. `Since::default()` looks
/// at everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Since {
    /// For ordinary rows.
    pub ordinary: Option<Duration>,
    /// For suspects.
    pub suspect: Option<Duration>,
}

impl Limit {
    /// At most this many rows, of any size.
    pub fn rows(rows: usize) -> Self {
        Self { rows, bytes: usize::MAX, since: None }
    }
}

/// The result for a taken row. Each variant clears the token, and applies only if the row still has that token.
// Exhaustive: a store that ignored a new result or a new part of one would run a message too often or lose it, so it must
// not compile.
#[derive(Debug, Clone)]
pub enum Note {
    /// The run failed: attempts + 1, starts 0, breaks 0; due after this time, or dead for this reason.
    Failed {
        /// The time until it runs again, or the reason why it does not.
        next: Result<Duration, Reason>,
        /// The handler's error.
        error: String,
    },
    /// The run lost its connection: start refunded, breaks + 1; due after this time, or, at 10 breaks, dead as
    /// `broke its connection`.
    Broke {
        /// The time until it runs again.
        due: Duration,
        /// The error that was observed.
        error: String,
    },
    /// It was not run: start refunded, due after this time.
    GivenBack {
        /// The time until it may be taken again.
        due: Duration,
    },
    /// It was reserved but has not started: its starts are those of the given row, and it is due after this time.
    Released {
        /// The time until it may be taken again.
        due: Duration,
    },
    /// It cannot be run: dead, without counting an attempt.
    Dead {
        /// The reason.
        reason: Reason,
        /// The error that was found.
        error: String,
    },
}

/// The pending work of a consumer's handlers.
// Exhaustive: a store that did not look for a new kind of work would leave those rows forever, so it must not compile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DueRows {
    /// An ordinary row is due.
    pub ordinary: bool,
    /// A suspect is due.
    pub suspect: bool,
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

/// A page of a list, newest rows first. By default the first 100 rows.
///
/// ```
/// # use idem_core::store::Page;
/// let next = Page::new(20).before(4711);
/// assert_eq!((next.limit, next.before), (20, Some(4711)));
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Page {
    /// Lists only rows with a smaller id: the last one of the previous page.
    pub before: Option<i64>,
    /// The maximum number of rows.
    pub limit: u32,
}

impl Default for Page {
    fn default() -> Self {
        Self::new(100)
    }
}

impl Page {
    /// The first page, of at most this many rows.
    pub fn new(limit: u32) -> Self {
        Self { before: None, limit }
    }

    /// The page behind the row with this id, the last one of the page before.
    pub fn before(self, id: i64) -> Self {
        Self { before: Some(id), ..self }
    }
}

/// The result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replayed {
    /// The row is due now.
    Due,
    /// There is no dead row with this id, or no longer one.
    NotFound,
    /// Its handler had committed, or it was too old to tell whether it was processed, so some of its effects may
    /// persist: replay it by force, or discard it.
    NeedsForce,
    /// Its key belongs to another message: replay it under a new key.
    NeedsKey,
    /// The new key belongs to another message.
    KeyTaken,
}

/// The result of a replay of many dead letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayedAll {
    /// How many are due now.
    pub due: u64,
    /// How many were left because they need force, see [`Replayed::NeedsForce`].
    pub needs_force: u64,
    /// How many were left because they need another key, see [`Replayed::NeedsKey`].
    pub needs_key: u64,
}

/// The result of a prune. By default nothing was pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of deleted claims.
    pub claims: u64,
    /// Another pruner was active, so nothing was done.
    pub elsewhere: bool,
}

impl Pruned {
    /// This pruner deleted as many claims.
    pub fn of(claims: u64) -> Self {
        Self { claims, elsewhere: false }
    }

    /// Another pruner is active.
    pub fn elsewhere() -> Self {
        Self { claims: 0, elsewhere: true }
    }
}

/// The number of breaks that makes a message a dead letter.
pub const MAX_BREAKS: u32 = 10;
/// The number of starts without a result that makes a message a dead letter.
pub const MAX_STARTS: u32 = 4;
/// The number of leases for which the last lease must be over before a row becomes a dead letter.
pub const JUDGE_LEASES: u32 = 3;
