//! Local messages that do not run.

use crate::store::LOCAL_CONFLICT;

/// How many local messages of a transaction do not run, because their keys were claimed before.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Unscheduled {
    /// Dead letters.
    pub(crate) conflicts: usize,
    /// Copies, which are left out.
    pub(crate) duplicates: usize,
}

impl Unscheduled {
    /// Logs them, once they are committed.
    pub(crate) fn tell(self) {
        let Self { conflicts, duplicates } = self;
        if conflicts > 0 {
            tracing::warn!(conflicts, "local messages became dead letters: {LOCAL_CONFLICT}");
        }
        if duplicates > 0 {
            tracing::debug!(duplicates, "local messages were left out: copies of them were claimed before");
        }
    }
}
