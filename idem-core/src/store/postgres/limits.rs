//! What a connection is for, and how long its statements may take.

use std::time::Duration;

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long one of idem's own statements may take, COMMIT included. A server that is stopped or cut off answers
/// nothing, not even an error.
pub(super) const OWN: Duration = Duration::from_secs(10);
/// How long one of idem's own statements waits for a lock, in milliseconds.
pub(super) const LOCK_WAIT: u64 = 1000;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Transactions, in which a handler may have it. Outside of them its session is read-only.
    Lent,
    /// Statements of idem's own that are committed by themselves. No handler ever has it.
    Own,
}

impl Use {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Lent => Self::Own,
            Self::Own => Self::Lent,
        }
    }
}
