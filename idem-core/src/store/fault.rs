//! Why a statement of idem's own failed.

use crate::BoxError;

/// Why a statement of idem's own failed, by who is to blame: a concurrent transaction, the message, the connection or the
/// database. A handler's statements are the handler's business. Which answer of a database means what is said in one place
/// of its store, the module `answer`.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Another transaction has the row, and did not end within the lock timeout (55P03, SQLITE_BUSY). The delivery is held
    /// for a moment.
    #[error("another transaction holds the claim")]
    Busy,
    /// Lost against a concurrent transaction (40001, 40P01); a new transaction may succeed.
    #[error("a concurrent transaction was faster")]
    Retry(#[source] BoxError),
    /// The database works, and refuses what idem writes for this message: a constraint or a trigger that somebody has added
    /// to idem's tables, a value that is too large, a payload whose INSERT takes longer than a statement may. It would be
    /// refused again at once, and others are not. So only this message is held, longer each time up to a minute; in a
    /// batch, the batch is split until it is alone. It stays with the broker, unacked, and is never dropped.
    #[error("the database refuses what is written for the message")]
    Message(#[source] BoxError),
    /// There was no answer, or it was the session's last one (a connection that was lost, a backend that was ended), or the
    /// statement was cancelled. That says little about the database: it is asked for a sign of life, and consumption pauses
    /// only if that fails. What the statement was for is tried again, on another connection.
    #[error("the database gave no answer")]
    Lost(#[source] BoxError),
    /// The database has answered, and does not let idem do its work: it is out of room, read-only, damaged, without idem's
    /// tables or rights; or an answer that is not known. None of it is a message's fault. Consumption pauses, and goes on
    /// when the database answers and one message has shown that its work can be written.
    #[error("the database cannot be used")]
    Outage(#[source] BoxError),
}

impl Fault {
    /// Whether the session goes on after it, so that the transaction can be rolled back.
    pub(crate) fn is_answered(&self) -> bool {
        !matches!(self, Self::Lost(_) | Self::Outage(_))
    }
}
