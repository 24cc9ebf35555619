//! The state of a session: how what a handler leaves is removed, and what each transaction sets behind a pooler.

use super::quote::literal;

/// Removes what a handler leaves for the next one of its batch, in their transaction: the role, all settings, cursors, temporary
/// tables and the session's sequence values.
pub(super) const RESET: &str =
    "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; DISCARD TEMP; DISCARD SEQUENCES";

/// Follows the end of each transaction that a handler has used, in the same string. Its last statement returns true. If one of them
/// fails, the connection is closed.
pub(super) const CLEAN: &str = "; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD TEMP; \
                                EXECUTE idem_clean";

/// Prepares the statement that releases a handler's locks, once per connection. If a handler has removed all prepared
/// statements, idem's would be missing for the next message: then this one fails.
pub(super) const PREPARE: &str =
    "PREPARE idem_clean AS SELECT pg_catalog.pg_advisory_unlock_all()::pg_catalog.text = ''";

/// The settings that determine whose rows a statement finds, and how it interprets them.
pub(super) const MEANING: [&str; 7] = [
    "search_path",
    "row_security",
    "session_replication_role",
    "TimeZone",
    "DateStyle",
    "IntervalStyle",
    "client_encoding",
];

/// A temporary table hides a table of the same name, and keeps the rows of an earlier handler. A session that never had
/// a temporary table is not checked further.
const NO_TEMPORARY_TABLES: &str = "(pg_catalog.pg_my_temp_schema() = 0 OR NOT EXISTS (
    SELECT FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.pg_my_temp_schema()))";

/// The role and the settings of a session at its login.
///
/// What a handler sets (`SET ROLE`, `SET search_path`) outlives its commit, and a pooler lends the session to the next
/// transaction of any client. So each of idem's transactions sets these for itself.
pub(super) struct SessionState {
    /// The user of the session.
    pub(super) user: String,
    /// A condition that holds while they are unchanged.
    pub(super) same: String,
    /// The statement by which a transaction sets them for itself.
    pub(super) local: String,
    /// The statement by which a session gets them.
    pub(super) lasting: String,
}

impl SessionState {
    /// Takes the values of [`MEANING`] in this order.
    pub(super) fn new(user: String, role: &str, read_only: bool, values: Vec<String>) -> Self {
        let named: Vec<_> = MEANING.into_iter().zip(values).collect();
        let mut same =
            format!("current_user = {} AND session_user = {} AND {NO_TEMPORARY_TABLES}", literal(role), literal(&user));
        for (name, value) in &named {
            same += &format!(" AND pg_catalog.current_setting('{name}') = {}", literal(value));
        }
        // In this order: setting the user resets the role, and the role decides what may be set.
        let first = [
            ("session_authorization", user.clone()),
            ("role", if role == user { "none" } else { role }.to_owned()),
            ("default_transaction_read_only", if read_only { "on" } else { "off" }.to_owned()),
        ];
        let all: Vec<_> = first.into_iter().chain(named).collect();
        Self { local: set(&all, true), lasting: set(&all, false), user, same }
    }
}

/// Returns a statement without a row that sets those that differ. The setting that needs a privilege is left as it is if the
/// role lacks that: then a function with the rights of another role has set it.
fn set(all: &[(&str, String)], local: bool) -> String {
    let one = |(name, value): &(&str, String)| {
        let value = literal(value);
        let may = match *name {
            "session_replication_role" => " AND pg_catalog.has_parameter_privilege('session_replication_role', 'SET')",
            _ => "",
        };
        format!(
            "CASE WHEN pg_catalog.current_setting('{name}') <> {value}{may}
                 THEN pg_catalog.set_config('{name}', {value}, {local}) END"
        )
    };
    let all: Vec<_> = all.iter().map(one).collect();
    format!(" SELECT WHERE pg_catalog.concat({}) IS NULL;", all.join(", "))
}
