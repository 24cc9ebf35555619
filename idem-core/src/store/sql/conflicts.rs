//! Local messages that become dead letters.

use crate::store::LOCAL_CONFLICT;

/// Logs how many local messages of a transaction do not run, because other messages had claimed their keys, once it is committed.
pub(crate) fn tell_of_conflicts(conflicts: i64) {
    if conflicts > 0 {
        tracing::warn!(conflicts, "local messages became dead letters: {LOCAL_CONFLICT}");
    }
}
