//! Inbox rows, and what is asked and answered about them.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::{Delivery, Reason};

use super::Identity;

/// A row to be inserted.
#[derive(Debug)]
pub struct NewRow<'a> {
    /// Whose message it is.
    pub identity: &'a Identity,
    /// Its payload, headers and facts.
    pub delivery: &'a Delivery,
    /// How many attempts have failed.
    pub attempts: u32,
    /// Dead for this reason, or parked and due in this time.
    pub state: Result<Duration, Reason>,
    /// What the last attempt said; empty if there was none.
    pub error: &'a str,
}

/// An inbox row.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its number.
    pub id: i64,
    /// Whose message it is.
    pub identity: Identity,
    /// The handler's name; empty where no handler is known.
    pub handler: String,
    /// The message as it was delivered.
    pub delivery: Delivery,
    /// Set while it is taken.
    pub token: Option<Uuid>,
    /// Runs that were begun since the last outcome; a running one is counted, a reserved suspect's is not.
    pub starts: u32,
    /// Attempts that failed.
    pub attempts: u32,
    /// Runs since the last outcome that lost their database connection.
    pub breaks: u32,
    /// How often it was seen, the first time included.
    pub sightings: u64,
    /// Why it is dead; `None` while it is parked.
    pub reason: Option<Reason>,
    /// What the last attempt said.
    pub error: String,
    /// When it was stored.
    pub created_at: SystemTime,
    /// When it runs, or when its lease ends.
    pub due_at: SystemTime,
    /// When it was given up.
    pub died_at: Option<SystemTime>,
    /// For how long it had been due when it was taken; only [`take`](crate::store::InboxRows::take) tells.
    pub waited: Option<Duration>,
}

impl Row {
    /// What must not run beside it.
    pub fn isolation(&self) -> Isolation {
        match (self.starts, self.breaks) {
            (2.., _) => Isolation::Process,
            (1, _) | (_, 2..) => Isolation::Inbox,
            _ => Isolation::None,
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        self.delivery.bytes()
    }
}

/// What must not run beside a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Nothing in particular: it is ordinary.
    None,
    /// Other rows of the inbox in its process: it has 1 start without an outcome, or at least 2 breaks. A process that is
    /// killed leaves many of these behind, so that direct deliveries go on beside them.
    Inbox,
    /// Anything in its process: it has at least 2 starts without an outcome, the second of them alone among the rows.
    Process,
}

/// Which due rows to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ordinary rows: no start, and at most 1 break. Their start is counted as they are taken.
    Ordinary,
    /// Suspects, which may have ended a process or a connection: 1 to 3 starts, or at least 2 breaks (and starts below
    /// 4). They are only reserved: a start is counted by [`count_start`](crate::store::InboxRows::count_start).
    Suspect,
}

/// How many rows to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// At most so many.
    pub rows: usize,
    /// Of about so many bytes together: the last of them goes beyond.
    pub bytes: usize,
    /// Only what became due no longer ago than this, where that is quicker to find; `None`: however long ago.
    pub since: Option<Duration>,
}

/// How far back a survey has to look, where that is quicker; `None`: to the oldest that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Since {
    /// For ordinary rows.
    pub ordinary: Option<Duration>,
    /// For suspects.
    pub suspect: Option<Duration>,
}

impl Limit {
    /// At most so many, however large they are.
    pub fn rows(rows: usize) -> Self {
        Self { rows, bytes: usize::MAX, since: None }
    }
}

/// What became of a taken row. Each clears the token, and applies only where the token is still the row's.
#[derive(Debug, Clone)]
pub enum Note {
    /// The run failed: attempts + 1, starts 0, breaks 0; due in this time, or dead for this reason.
    Failed {
        /// When it runs again, or why it does not.
        next: Result<Duration, Reason>,
        /// What the handler said.
        error: String,
    },
    /// The run lost its connection: start given back, breaks + 1; due in this time, or, at 10 breaks, dead as
    /// `broke its connection`.
    Broke {
        /// When it runs again.
        due: Duration,
        /// What was seen.
        error: String,
    },
    /// It was not run: start given back, due in this time.
    GivenBack {
        /// When it may be taken again.
        due: Duration,
    },
    /// It was reserved, and has not begun: its starts are what they were, and it is due now.
    Released,
    /// It cannot be run: dead, with no attempt counted.
    Dead {
        /// Why.
        reason: Reason,
        /// What was found.
        error: String,
    },
}

/// What is to be done for a consumer's handlers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Survey {
    /// An ordinary row is due.
    pub ordinary: bool,
    /// A suspect is due.
    pub suspect: bool,
    /// A row is to be judged.
    pub judge: bool,
}

/// How full the inbox is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// How many rows are parked.
    pub parked: u64,
    /// How many rows are dead.
    pub dead: u64,
    /// For how long the oldest due row has been due.
    pub oldest_due: Option<Duration>,
}

/// Which rows to list. The default is all dead rows.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Parked rows instead of dead ones.
    pub parked: bool,
    /// Only those of this handler.
    pub handler: Option<String>,
    /// Only those that died for this reason.
    pub reason: Option<Reason>,
}

/// Which part of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Only rows with a smaller number: the last one of the page before.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

impl Default for Page {
    fn default() -> Self {
        Self { before: None, limit: 100 }
    }
}

/// The answer to a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// It is due now.
    Due,
    /// There is no dead row of this number (any more).
    NotFound,
    /// Its handler had committed, or it was too old to tell whether it was processed, so that effects may stand already:
    /// replay it by force, or discard it.
    NeedsForce,
    /// Its key belongs to another message: replay it under a new key.
    NeedsKey,
    /// The new key belongs to another message.
    KeyTaken,
}

/// What a prune did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many claims were deleted.
    pub claims: u64,
    /// Another pruner was at work, so that nothing was done.
    pub elsewhere: bool,
}

/// How many breaks end a message.
pub const MAX_BREAKS: u32 = 10;
/// How many starts without an outcome end a message.
pub const MAX_STARTS: u32 = 4;
/// For how many leases the last lease has to be over before a row is judged.
pub const JUDGE_LEASES: u32 = 3;
