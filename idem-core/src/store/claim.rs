//! Claims: what identifies one, and what the database answers.

use std::time::{Duration, SystemTime};

use super::Fault;
use crate::{BoxError, Fingerprint, Key};

/// (consumer, handler), interned as a small integer in the table `handlers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandlerId(pub i32);

/// What identifies a message to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Whose message it is.
    pub handler: HandlerId,
    /// Its key. Empty for a message of which no key could be made; such a message has no claim.
    pub key: Key,
    /// What it looks like.
    pub fingerprint: Fingerprint,
}

/// What a claim promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The message is processed when this transaction commits: the claim is dated.
    Processed,
    /// The message has an inbox row when this transaction commits: the claim is null, and never pruned.
    Waiting,
}

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The claim was inserted.
    New {
        /// The highest time at which a claim of this handler was dated that was pruned; `None` where none was pruned. The
        /// claim's own statement reads it, and so sees what prune had committed when it found no claim: a message of
        /// before that can have been processed although it has no claim.
        pruned_through: Option<SystemTime>,
    },
    /// There is a committed claim of this key. Whether it is this message is for [`Standing`] to say.
    Found,
}

impl Claimed {
    /// Whether the claim was inserted.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New { .. })
    }
}

/// A committed claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What the message looked like that holds the key.
    pub fingerprint: Fingerprint,
    /// How long ago it was processed; `None` while it has an inbox row.
    pub age: Option<Duration>,
}

/// The answer to a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// Nothing of the transaction is in the database.
    RolledBack,
    /// Nor here; but it was the handler that ended the transaction, by ROLLBACK, before it failed.
    Ended,
    /// The handler had ended the transaction by COMMIT before it failed: the claim, and what it had written by then,
    /// stand.
    CommittedEarly,
    /// The handler had run COMMIT before it failed, and the database refused that: nothing of the transaction is in it.
    CommitRefused,
}

/// The answer to a commit.
#[derive(Debug)]
pub enum Committed {
    /// It is durable.
    Done,
    /// The handler swallowed a SQL error, so that the transaction was aborted; nothing was written.
    Swallowed,
    /// The handler had ended the transaction by ROLLBACK; nothing of the claim was written.
    RolledBack,
    /// The handler had ended the transaction by COMMIT: the claim, and what it had written by then, stand.
    CommittedEarly,
    /// The handler had run COMMIT, which the database refused; nothing was written.
    CommitRefused,
    /// The database refused to commit (a deferred constraint, for example); nothing was written.
    Refused(BoxError),
    /// Lost against a concurrent transaction (40001, 40P01), or out of time (57014); nothing was written, and a new
    /// transaction may succeed.
    Retry(BoxError),
    /// No answer ([`Fault::Lost`]), or one that is not to be believed ([`Fault::Outage`]): it may have committed or not. The
    /// connection is closed. The claim will tell.
    Unknown(Fault),
}

/// What a transaction is known by to other connections.
///
/// The number alone is not enough: a server that crashed gives the numbers of transactions that had written nothing to its log
/// yet to others. Where the claim is not that transaction's, nothing of it is in the database.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Its number, as the database writes it. Empty where it has none.
    pub number: String,
    /// One of the claims that it has made or dated, where the number could be another's.
    pub claim: Option<(HandlerId, Key)>,
    /// The number of its session on the server, where it keeps one session for its whole life.
    pub session: Option<i32>,
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It has not ended: its connection was dropped, and the database has not noticed or still runs its last statement.
    Running,
    /// Nothing of it is in the database.
    RolledBack,
    /// Nor here; the handler had run COMMIT, which the database refused.
    CommitRefused,
    /// The claim, and what was written in it, stand.
    Committed,
}
