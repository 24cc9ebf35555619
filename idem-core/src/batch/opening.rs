//! How a transaction of a batch starts, and its result.

use std::time::Duration;

use crate::store::{Row, StoreError};

use super::item::Verdict;

/// The first step of a transaction of a batch.
#[derive(Clone, Copy)]
pub(super) enum Opening<'a> {
    /// The claims of deliveries.
    Claims,
    /// The start of inbox rows, which already have claims.
    Rows(&'a [Row]),
}

/// The result of one claim of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    New,
    /// Processed this long ago.
    Duplicate(Duration),
    /// To be processed alone.
    Single,
    /// The lease of its row was lost.
    Lost,
}

/// The result of one transaction of a batch. Unless it is `Done` or `Broke`, nothing of it is in the database, except what
/// natural handlers have written before one of them ran COMMIT.
pub(super) enum TransactionResult {
    /// Committed: a verdict for each item, in their order.
    Done(Vec<Verdict>),
    /// The handler of this item failed, or these items cannot be in a batch: the others run again without them.
    Without(Vec<usize>),
    /// A message failed, and it is unknown which: a swallowed error, a deferred constraint, a locked key, a message
    /// that the database refuses, a COMMIT beside messages without claims.
    Split,
    /// Lost against a concurrent transaction.
    Deadlock,
    /// Another transaction holds the claim of a local message, for as long as its handler runs; or it is another batch,
    /// which waits for a claim of this one.
    Busy,
    /// The database did not respond, or cannot be used; nothing had begun.
    Outage(StoreError),
    /// The connection was lost, or COMMIT got no response.
    Broke,
    /// A suspect runs or waits, and so no further handler is called.
    PutOff,
    /// The worker is stopping.
    Stopped,
}
