//! The result of a claim that an application makes in its own transaction.

/// The result of a claim in a transaction of the application's own: `Postgres::claim_in` and `Sqlite::claim_in`, which
/// have an example.
// Exhaustive: an application that does not treat a new result would process a message twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "only a new message may be processed"]
pub enum OwnClaim {
    /// The message was not processed before. It is claimed as soon as the application commits.
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

    /// The result if there is a claim, with this fingerprint.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn found(same: bool) -> Self {
        if same { Self::Duplicate } else { Self::Conflict }
    }
}
