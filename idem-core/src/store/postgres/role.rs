//! The role of a pooler's session.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::session::literal;

/// The role that a pooler's session had when a transaction began in it.
///
/// A handler's `SET ROLE` or `SET SESSION AUTHORIZATION` outlives its commit, and the pooler lends the session to the
/// next transaction of any client. idem does not reset the role, because the pooler may have set one itself
/// (`connect_query`), but leaves the session with the role in which it found it.
pub(super) struct Role {
    /// The process id of the backend.
    process: i32,
    /// The role that was set, or `none`.
    set: String,
    /// The user of the session.
    user: String,
}

/// The statement that reads it, in the same string as BEGIN.
pub(super) const FOUND: &str = " SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('role'), \
     pg_catalog.current_setting('session_authorization');";

impl Role {
    /// Decodes the answer to [`FOUND`].
    pub(super) fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { process: row.try_get(0)?, set: row.try_get(1)?, user: row.try_get(2)? })
    }

    /// Returns a statement that sets the role again if it is another one. After the transaction, what was set only for
    /// the transaction is over; a rollback has undone the rest. If the handler has ended the transaction, the pooler may
    /// have lent another session since, and that one is left alone.
    pub(super) fn restore(&self) -> String {
        let (set, user) = (literal(&self.set), literal(&self.user));
        // In this order, because setting the user resets the role.
        format!(
            "; SELECT pg_catalog.set_config('session_authorization', {user}, false), \
             pg_catalog.set_config('role', {set}, false) \
             WHERE pg_catalog.pg_backend_pid() = {} \
             AND (pg_catalog.current_setting('session_authorization') <> {user} OR pg_catalog.current_setting('role') <> {set})",
            self.process
        )
    }
}
