//! What a transaction of a batch opens with, and what it comes to.

use crate::store::{Row, StoreError};

use super::item::Verdict;

/// What a transaction of a batch opens with.
#[derive(Clone, Copy)]
pub(super) enum Opening<'a> {
    /// The claims of deliveries.
    Claims,
    /// The start of rows of the inbox, which have their claims.
    Rows(&'a [Row]),
}

/// What one transaction of a batch came to. Unless it is `Done`, nothing of it is in the database.
pub(super) enum Round {
    /// Committed: a verdict for each item, in their order.
    Done(Vec<Verdict>),
    /// The handler of this item failed, or these items cannot be in a batch: the others run again without them.
    Without(Vec<usize>),
    /// Somebody failed, and nobody can be named: a swallowed error, a deferred constraint, a key that is held up, a message
    /// that the database refuses.
    Split,
    /// Lost against a concurrent transaction.
    Deadlock,
    /// The database gave no answer, or cannot be used; nothing had begun.
    Outage(StoreError),
    /// The connection was lost, or COMMIT was not answered.
    Broke,
    /// A handler ran COMMIT: the claims stand, and perhaps some of the effects.
    CommittedEarly(Vec<usize>),
    /// The worker stops.
    Stopped,
}
