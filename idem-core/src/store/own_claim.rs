//! The result of a claim that an application makes in its own transaction.

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

    /// The result if there is a claim: whether it has the same fingerprint, and whether the same transaction has made it.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn found(same: bool, is_own: bool) -> Self {
        match (same, is_own) {
            (false, _) => Self::Conflict,
            (true, true) => Self::New,
            (true, false) => Self::Duplicate,
        }
    }
}

/// Refuses a connection in which sqlx counts no transaction: whatever is written there is committed at once.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn check_transaction(is_open: bool) -> Result<(), crate::Error> {
    if is_open {
        return Ok(());
    }
    Err(crate::Error::Config(
        "the connection is in no transaction, so that each statement would be committed at once: begin one by sqlx, with \
         `begin()` or `begin_with(..)`. If one was begun, sqlx has rolled it back, because `begin()` of a nested \
         transaction failed or was dropped before its end: begin again"
            .to_owned(),
    ))
}
