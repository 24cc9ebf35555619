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
}
