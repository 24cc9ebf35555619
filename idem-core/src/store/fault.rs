//! Why a statement of idem's own failed.

use crate::BoxError;

/// Why a statement of idem's own failed. A handler's statements are the handler's business.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Another transaction has the row, and did not end within the lock timeout (55P03, SQLITE_BUSY).
    #[error("another transaction holds the claim")]
    Busy,
    /// Lost against a concurrent transaction (40001, 40P01); a new transaction may succeed.
    #[error("a concurrent transaction was faster")]
    Retry(#[source] BoxError),
    /// Everything else: the database is away, shuts down, is out of room, or does not let idem do its work. None of it
    /// is a message's fault; consumption pauses until the database answers again.
    #[error("the database cannot be used")]
    Outage(#[source] BoxError),
}
