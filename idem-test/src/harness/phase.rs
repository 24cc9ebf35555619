//! The phases of a delivery in one process.

use std::fmt;

/// The phase of a delivery in which a process dies.
///
/// ```
/// # use idem_test::harness::Phase;
/// assert_eq!(Phase::ALL[1].to_string(), "in the handler");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The claim is made; with an inbox, the message is stored, acked and taken.
    BeforeHandler,
    /// The handler runs.
    InHandler,
    /// A commit runs, after the handler has begun.
    InCommit,
    /// Everything else after the handler has begun: the ack, a rollback, and what follows a failure.
    After,
}

impl Phase {
    /// Every phase, in the order in which a delivery reaches them.
    pub const ALL: &[Self] = &[Self::BeforeHandler, Self::InHandler, Self::InCommit, Self::After];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeHandler => "before the handler",
            Self::InHandler => "in the handler",
            Self::InCommit => "in the commit",
            Self::After => "afterwards",
        })
    }
}
