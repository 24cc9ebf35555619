//! The uses of a connection, and the time limits of its statements.

use std::time::Duration;

/// How long opening a connection may take.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long one of idem's own statements may take, including COMMIT. A server that is stopped or cut off sends no
/// answer, not even an error.
pub(super) const OWN: Duration = Duration::from_secs(10);
/// How long one of idem's own statements waits for a lock, in milliseconds.
pub(super) const LOCK_WAIT: u64 = 1000;

/// How much longer than the handler timeout the session may stay idle. This process enforces the timeout; the
/// server-side limit applies if this process dies.
const MARGIN: Duration = Duration::from_secs(10);

/// Returns how long the session may be idle in a transaction of a handler with this timeout, in milliseconds.
pub(super) fn idle_timeout(handler_timeout: Duration) -> u64 {
    millis(handler_timeout.saturating_add(MARGIN))
}

/// Converts to whole milliseconds, from 1 (0 would mean no limit) to the highest value that the server accepts.
pub(super) fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).clamp(1, i32::MAX as u64)
}

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// For transactions, in which a handler may use it. Outside of them its session is read-only.
    Lent,
    /// For idem's own statements in autocommit. No handler uses it.
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
