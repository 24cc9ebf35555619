//! The fill level of the tables.

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
