//! The statements that begin a transaction.

use super::run::RUN;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; DISCARD SEQUENCES";

/// The same in a session whose transactions are read committed unless they say otherwise: to say it costs the server time.
const BEGIN_READ_COMMITTED: &str = "BEGIN READ WRITE; DISCARD SEQUENCES";

/// Returns BEGIN.
pub(super) fn begin(is_read_committed: bool) -> &'static str {
    if is_read_committed { BEGIN_READ_COMMITTED } else { BEGIN }
}

/// Sets the statement timeout of a transaction, and returns its id and the run of the server. Prepared once per connection:
/// one statement costs the server less than two.
///
/// `set_config` returns no null. The other limits are missing, since most sessions have them by themselves.
pub(super) fn prepare() -> String {
    format!(
        "PREPARE idem_begin (text) AS SELECT pg_catalog.pg_current_xact_id()::text, {RUN}
         WHERE pg_catalog.set_config('statement_timeout', $1, true) IS NOT NULL"
    )
}
