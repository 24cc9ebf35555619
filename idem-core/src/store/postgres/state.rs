//! The role and the settings of a pooler's session.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::session::{MEANING, literal};

/// The role and the settings that a pooler's session had when a transaction began in it.
///
/// What a handler sets (`SET ROLE`, `SET SESSION AUTHORIZATION`, `SET search_path`) outlives its commit, and the pooler
/// lends the session to the next transaction of any client. idem does not reset it, because the pooler may have set
/// something itself (`connect_query`), but leaves the session with the role and the settings in which it found it.
pub(super) struct SessionState {
    /// The process id of the backend.
    process: i32,
    /// The role that was set, or `none`.
    role: String,
    /// The user of the session.
    user: String,
    /// The settings, with their values.
    settings: Vec<(&'static str, String)>,
}

/// The setting that keeps a handler from writing behind the end of its transaction.
const READ_ONLY: &str = "default_transaction_read_only";

/// The names of the settings.
fn names() -> impl Iterator<Item = &'static str> {
    [READ_ONLY].into_iter().chain(MEANING)
}

/// Returns the statement that reads them, which follows BEGIN in the same string.
pub(super) fn found() -> String {
    let settings: String = names().map(|name| format!(", pg_catalog.current_setting('{name}')")).collect();
    format!(
        " SELECT pg_catalog.pg_backend_pid(), pg_catalog.current_setting('role'), \
         pg_catalog.current_setting('session_authorization'){settings};"
    )
}

/// Returns a text as an SQL expression. Guard, COMMIT and these statements are one string, which the server reads in the
/// `client_encoding` that the handler has left. So a text that is not ASCII is written as bytes.
fn expression(text: &str) -> String {
    match text.is_ascii() {
        true => literal(text),
        false => format!("pg_catalog.convert_from(pg_catalog.decode('{}', 'hex'), 'UTF8')", hex::encode(text)),
    }
}

impl SessionState {
    /// Decodes the answer to [`found`].
    pub(super) fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        let mut settings = Vec::new();
        for (place, name) in names().enumerate() {
            let value: String = row.try_get(3 + place)?;
            settings.push((name, value));
        }
        Ok(Self { process: row.try_get(0)?, role: row.try_get(1)?, user: row.try_get(2)?, settings })
    }

    /// Returns the statements that set the role and the settings again where they are others. After the transaction, what
    /// was set only for the transaction is over; a rollback has undone the rest. If the handler has ended the transaction,
    /// the pooler may have lent another session since, and that one is left alone.
    ///
    /// An error in one of them would undo all of it. So the setting that needs a privilege is left as it is if the role
    /// lacks that: then a function with the rights of another role has set it.
    pub(super) fn restore(&self) -> String {
        let (role, user, process) = (expression(&self.role), expression(&self.user), self.process);
        let settings = self.settings.iter().map(|(name, value)| format!("('{name}', {})", expression(value)));
        let settings = settings.collect::<Vec<_>>().join(", ");
        // In this order, because setting the user resets the role, and the role decides what may be set.
        format!(
            "; SELECT pg_catalog.set_config('session_authorization', {user}, false), \
             pg_catalog.set_config('role', {role}, false) \
             WHERE pg_catalog.pg_backend_pid() = {process} \
             AND (pg_catalog.current_setting('session_authorization') <> {user} OR pg_catalog.current_setting('role') <> {role}); \
             SELECT pg_catalog.set_config(name, value, false) FROM (VALUES {settings}) AS found (name, value) \
             WHERE pg_catalog.pg_backend_pid() = {process} AND pg_catalog.current_setting(name) <> value \
             AND (name <> 'session_replication_role' OR pg_catalog.has_parameter_privilege(name, 'SET'))"
        )
    }
}
