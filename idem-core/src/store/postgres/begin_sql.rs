//! The statements that begin a transaction.

use super::run::RUN;

pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; DISCARD SEQUENCES";

/// Sets the limits of a transaction, and returns its id and the run of the server. Prepared once per connection: one statement
/// costs the server less than one for each limit.
///
/// `set_config` returns no null, so that both are evaluated. The lock timeout is missing, since most sessions still have their own.
pub(super) fn prepare() -> String {
    format!(
        "PREPARE idem_begin (text, text) AS SELECT pg_catalog.pg_current_xact_id()::text, {RUN}
         WHERE pg_catalog.set_config('statement_timeout', $1, true) IS NOT NULL
           AND pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true) IS NOT NULL"
    )
}
