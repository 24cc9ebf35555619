//! Claims: the identities of handlers and messages, and the database's responses.

use std::time::{Duration, SystemTime};

use super::StoreError;
use crate::{BoxError, Fingerprint, Key};

/// (consumer, handler), interned as a small integer in the table `handlers`.
// Exhaustive: it is the column's number, and stores wrap and unwrap it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandlerId(pub i32);

/// The identity of a message in the store.
// Exhaustive: a store that did not read a new part of it would take two messages for one, so it must not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The handler of the message.
    pub handler: HandlerId,
    /// Its key. Empty for a message without a key, which has no claim.
    pub key: Key,
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
}

impl Identity {
    /// The order in which all transactions claim, so that none of them waits for one that waits for it.
    pub(crate) fn sort_key(&self) -> (i32, &[u8]) {
        (self.handler.0, self.key.as_bytes())
    }

    /// Whether the message has a key. One without a key has a row and no claim.
    pub fn has_key(&self) -> bool {
        !self.key.as_bytes().is_empty()
    }

    /// The key, if the message has one.
    pub(crate) fn known_key(&self) -> Option<&Key> {
        self.has_key().then_some(&self.key)
    }

    /// Whether a message with the same handler and key, and with this fingerprint, is a copy of this one. If it is not,
    /// it is a conflict. A fingerprint by another recipe tells nothing, and counts as a copy.
    ///
    /// The stores apply the same rule to inbox rows in SQL: the unique index (`migrations/*/0001_tables.sql`),
    /// and the statements in `store/*/inbox_sql.rs` that look for (handler, key, fingerprint), such as `INSERT`.
    pub(crate) fn is_copy(&self, fingerprint: Fingerprint) -> bool {
        self.fingerprint.is_copy_of(fingerprint)
    }
}

/// The state in which a claim is inserted.
// Exhaustive: a store that treated a new state like one of these would break the guarantee, so it must not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimState {
    /// The message is processed when this transaction commits: `processed_at` is set.
    Processed,
    /// The message has an inbox row when this transaction commits: `processed_at` is null, and the claim is never
    /// pruned.
    Waiting,
}

/// The response to a claim. Only the core decides by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claimed {
    /// The claim was inserted.
    New {
        /// The latest `processed_at` among the pruned claims of this handler; if none was pruned, `None`, or 1970 after
        /// a [mark](super::HandlerMark::Processes). The claim's statement reads it, and so sees the cutoff that
        /// prune had committed when the statement found no claim: a message published before it may have been processed
        /// although it has no claim.
        pruned_through: Option<SystemTime>,
    },
    /// There is a committed claim with this key, and it shows whether it belongs to this message. `None`: the statement
    /// did not read it, because it was committed only while the statement ran, or because the store reads claims in a
    /// statement of their own.
    Found(Option<ExistingClaim>),
}

impl Claimed {
    /// Returns whether the claim was inserted.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New { .. })
    }
}

/// A committed claim.
// Exhaustive: a store makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExistingClaim {
    /// The fingerprint of the message that holds the key.
    pub fingerprint: Fingerprint,
    /// The time since it was processed; `None` while it has an inbox row.
    pub age: Option<Duration>,
}

/// Why the driver has rolled back a transaction.
pub(crate) const UNBEGUN: &str = "a `begin()` of a nested transaction has failed, or was dropped before its end (by a timeout, \
                                  for example), upon which sqlx rolls back the whole transaction: limit the time of the \
                                  handler as a whole, by its timeout";

/// The state of a transaction after a handler, as [`check_between`](super::Transactions::check_between) finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxnState {
    /// It is open, and the one that idem began.
    Open,
    /// A handler has ended or aborted it, or has removed what guards it. Nothing more may run in it.
    Ended,
    /// The store has not checked it.
    Unknown,
}

/// What the error of a handler says about its transaction.
// Exhaustive: the core decides by it whether an attempt is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Nothing.
    Ordinary,
    /// It has lost a race with a concurrent transaction (40001), so that a new transaction may succeed. A handler can cause this
    /// itself, on every run, so it says nothing about concurrent batches.
    Race,
    /// The same by a deadlock (40P01), which always involves another transaction.
    Deadlock,
    /// Its session is outdated, and its message runs again at once in another one, without an attempt. It is ordinary
    /// if the session was new, for then the next one would have the same error.
    Outdated,
}

/// The result of a commit.
#[derive(Debug)]
#[non_exhaustive]
pub enum CommitResult {
    /// The transaction is durably committed.
    Done,
    /// The handler swallowed a SQL error, so the transaction was aborted; nothing was written.
    Swallowed,
    /// The handler had ended the transaction by ROLLBACK, or had prepared it for another session to commit, which was
    /// undone; nothing of the claim was written. On PostgreSQL also: by a COMMIT that was refused in a batch.
    RolledBack,
    /// The handler had ended the transaction by COMMIT: the claim, and the handler's writes up to that point, are
    /// committed. The handle is that of this transaction.
    CommittedEarly(Box<TxnHandle>),
    /// The handler had run COMMIT, which SQLite refused; nothing was written.
    CommitRefused,
    /// The database refused to commit (a deferred constraint, for example); nothing was written.
    Refused(BoxError),
    /// The transaction conflicted with a concurrent one (40001, 40P01) or timed out (57014); nothing was written, and a
    /// new transaction may succeed.
    Retry(BoxError),
    /// Another transaction holds the claim of a [local message](super::LocalMessage) for longer than the lock timeout of
    /// idem's own statements; nothing was written. A new transaction succeeds once that one has ended, which may take as
    /// long as a handler. No attempt is counted.
    Busy(BoxError),
    /// There was no response ([`StoreError::ConnectionLost`]), or an unreliable one ([`StoreError::Unavailable`]): the
    /// transaction may have committed or not. The connection is closed. The claim shows which.
    Unknown(StoreError),
    /// The connection was lost before COMMIT was sent or run: nothing was written, unless the handler had run COMMIT. The
    /// transaction handle shows which.
    NotSent(StoreError, Option<Box<TxnHandle>>),
}

impl CommitResult {
    /// Converts that of one of idem's own transactions, in which no handler ran.
    pub(crate) fn of_own(self) -> Result<(), StoreError> {
        match self {
            Self::Done => Ok(()),
            Self::Retry(error) => Err(StoreError::Serialization(error)),
            // No message was staged.
            Self::Busy(_) => Err(StoreError::LockTimeout),
            Self::Refused(error) => Err(StoreError::Message(error)),
            Self::Unknown(fault) | Self::NotSent(fault, _) => Err(fault),
            Self::Swallowed | Self::RolledBack | Self::CommittedEarly(_) | Self::CommitRefused => {
                Err(StoreError::Unavailable("the transaction ended although idem had not ended it".into()))
            }
        }
    }
}

/// A transaction handle: identifies a transaction for other connections.
///
/// The number alone is not enough: after a crash, a server reuses the numbers of transactions that had not yet written
/// anything to its log. If the claim does not belong to that transaction, nothing of it is in the database.
///
/// A store outside this crate starts with `TxnHandle::default()` and sets what it needs to find the transaction again.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnHandle {
    /// Its number, as the database writes it. Empty if it has none.
    pub number: String,
    /// One of the claims that it has inserted or marked as processed, if the number may be reused.
    pub claim: Option<(HandlerId, Key)>,
}

/// How a transaction ended that idem has not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxnOutcome {
    /// It has not ended: its connection was dropped, but the database has not noticed or still runs its last statement.
    Running,
    /// Nothing of it is in the database.
    RolledBack,
    /// Nothing of it is in the database, but the handler itself had ended it, by ROLLBACK, or by PREPARE TRANSACTION, which the
    /// store has undone.
    Ended,
    /// The handler had ended it by COMMIT: the claim, and the handler's writes up to that point, are committed.
    CommittedEarly,
    /// Nothing of it is in the database: the handler had run COMMIT, and the database refused it.
    CommitRefused,
    /// Nothing of it is in the database: the driver has rolled it back, since a nested transaction of the handler did not
    /// begin.
    Unbegun,
}

/// The result of a claim in a transaction of the application's own: `Postgres::claim_key` and `Sqlite::claim_key`, which
/// have an example.
// Exhaustive: an application that does not treat a new result would process a message twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only a new message may be processed"]
pub enum OwnClaim {
    /// The message was not processed before. It is claimed as soon as the application commits. If this transaction has made
    /// the claim itself, the answer is the same each time.
    New,
    /// A copy of the message was processed before.
    Duplicate,
    /// Another message with this key was processed before: the fingerprints differ.
    Conflict,
}

impl OwnClaim {
    /// Returns whether the message was not processed before.
    pub fn is_new(self) -> bool {
        self == Self::New
    }
}
