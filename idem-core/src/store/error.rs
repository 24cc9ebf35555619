//! Why one of idem's own statements failed.

use crate::BoxError;

/// The answer of a database to one of idem's own statements.
pub type Answer<T> = Result<T, StoreError>;

/// Why one of idem's own statements failed, by cause: a concurrent transaction, the message, the connection or the
/// database. Statements of a handler are not covered. Each store maps the database's error codes to these variants in
/// one place, its module `answer`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another transaction holds the row, and did not end within the lock timeout (55P03, SQLITE_BUSY), or within the time limit of
    /// a statement that has no other limit for its wait. The delivery is parked briefly.
    #[error("another transaction holds the claim")]
    LockTimeout,
    /// A conflict with a concurrent transaction (40001, 40P01); a new transaction may succeed.
    #[error("a concurrent transaction was faster")]
    Serialization(#[source] BoxError),
    /// The database works, but refuses what idem writes for this message: because of a constraint or a trigger that was
    /// added to idem's tables, a value that is too large, or a payload whose INSERT exceeds the statement timeout. It
    /// would refuse it again immediately, but accepts other messages. So only this message is parked, with a growing
    /// delay of up to a minute; a batch is split until the message is alone. The message stays with the broker,
    /// unacked, or in its inbox row, and is never dropped.
    #[error("the database refuses what is written for the message")]
    Message(#[source] BoxError),
    /// There was no response, or it was the session's last one (a lost connection, a terminated backend), or the
    /// statement was cancelled. This says little about the database: it is pinged, and consumption pauses only if the
    /// ping fails. The operation is retried on another connection.
    #[error("the database gave no answer")]
    ConnectionLost(#[source] BoxError),
    /// The database has responded, but idem cannot work with it: it is out of space, read-only, damaged, or lacks
    /// idem's tables or permissions; or the error is unknown. No message is at fault. Consumption pauses, and resumes
    /// once the database answers and the work of one message could be written.
    #[error("the database cannot be used")]
    Unavailable(#[source] BoxError),
    /// The database refuses what an operator asks for or changes: its role lacks a privilege (42501), or the server, the session or
    /// the file is read-only (25006, SQLITE_READONLY). Only [`ask`](super::Consumers::ask), the methods by which an operator changes
    /// messages and `prune` return it: for a worker the database is unavailable then.
    #[error("the database does not permit this")]
    Denied(#[source] BoxError),
}

impl StoreError {
    /// Returns whether the session remains usable, so that the transaction can be rolled back.
    pub(crate) fn is_answered(&self) -> bool {
        !matches!(self, Self::ConnectionLost(_) | Self::Unavailable(_) | Self::Denied(_))
    }
}
