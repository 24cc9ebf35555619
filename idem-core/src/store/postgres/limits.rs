//! The uses of a connection, and the time limits of its statements.

use std::time::Duration;

/// How long opening a connection may take.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How long one of idem's own statements may take, including COMMIT. A server that is stopped or cut off sends no
/// answer, not even an error.
pub(super) const OWN: Duration = Duration::from_secs(10);
/// How long one of idem's own statements waits for a lock, in milliseconds.
pub(super) const LOCK_WAIT: u64 = 1000;

/// The use of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// For transactions, in which a handler may use it. Outside of them its session is read-only.
    Lent,
    /// For idem's own statements in autocommit. No handler uses it.
    Own,
}
