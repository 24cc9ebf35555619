//! The fill level of the tables, and the result of pruning them.

use std::time::Duration;

/// The fill level of the inbox. A store outside this crate starts with `Stats::default()`, which is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of scheduled rows.
    pub scheduled: u64,
    /// The number of dead rows.
    pub dead: u64,
    /// How long the oldest due row has been due.
    pub oldest_due: Option<Duration>,
}

/// The result of a prune. By default nothing was pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// The number of deleted claims.
    pub claims: u64,
    /// Another pruner was active, so nothing was done.
    pub elsewhere: bool,
}

impl Pruned {
    /// This pruner deleted as many claims.
    pub fn of(claims: u64) -> Self {
        Self { claims, elsewhere: false }
    }

    /// Another pruner is active.
    pub fn elsewhere() -> Self {
        Self { claims: 0, elsewhere: true }
    }
}
