//! When planned disruptions are due.

/// The moves that are due now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    /// The number of messages that were processed.
    pub(crate) done: u64,
    /// All remaining moves are due, because the workers have run out of work and hold what they get.
    pub(crate) all: bool,
}

impl Due {
    /// Returns whether what was planned for this moment is due.
    pub(crate) fn is(self, moment: u64) -> bool {
        self.all || self.done >= moment
    }
}
