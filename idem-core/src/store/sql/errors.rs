//! Errors as the tables keep them.

use std::borrow::Cow;

use crate::store::{LOCAL_CONFLICT, MAX_STARTS};

/// The error of a row that was started so often; that of its last failed attempt follows.
pub(crate) const CRASHED: &str = "the process ended 4 times while this message ran, the last two times while nothing ran beside it: \
                                  replay it if the process was killed from outside";
const _: () = assert!(MAX_STARTS == 4);

/// Returns the text of an error as stores keep it: PostgreSQL's text has no NUL.
pub(crate) fn error_text(error: &str) -> Cow<'_, str> {
    if error.contains('\0') { Cow::Owned(error.replace('\0', "\\0")) } else { Cow::Borrowed(error) }
}

/// Logs how many local messages of a transaction do not run, because other messages had claimed their keys, once it is committed.
pub(crate) fn log_conflicts(conflicts: i64) {
    if conflicts > 0 {
        tracing::warn!(conflicts, "local messages became dead letters: {LOCAL_CONFLICT}");
    }
}
