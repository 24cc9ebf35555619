//! The state of a connection that outlives a transaction.

use sqlx::sqlite::SqliteConnection;

/// Temporary objects hide tables of the same name, and so do those of an attached database where the file has none. The
/// settings decide what statements mean, whether they can be run, and for how long others are locked out; each can be
/// changed inside a transaction. Those that cannot (`foreign_keys`, `synchronous`, `temp_store`) need no look: the
/// connection of a handler that has ended its transaction is closed. Neither do those that end with the transaction
/// (`defer_foreign_keys`).
pub(super) const STATE: &str = "
    SELECT (SELECT count(*) FROM sqlite_temp_schema)
        || ' ' || (SELECT count(*) FROM pragma_database_list WHERE name NOT IN ('main', 'temp'))
        || ' ' || (SELECT query_only FROM pragma_query_only)
        || ' ' || (SELECT max_page_count FROM pragma_max_page_count)
        || ' ' || (SELECT recursive_triggers FROM pragma_recursive_triggers)
        || ' ' || (SELECT ignore_check_constraints FROM pragma_ignore_check_constraints)
        || ' ' || (SELECT writable_schema FROM pragma_writable_schema)
        || ' ' || (SELECT reverse_unordered_selects FROM pragma_reverse_unordered_selects)
        || ' ' || (SELECT timeout FROM pragma_busy_timeout)
        || ' ' || (SELECT locking_mode FROM pragma_locking_mode)
        || ' ' || ('a' LIKE 'A')";

/// The text of the error if a handler left something for the other handlers of its transaction.
pub(super) const CHANGED: &str = "a handler of a batch left a temporary table, view or trigger, an attached database or \
                                  a changed pragma for those behind it";

/// Describes what a handler can leave behind. It reads no table of the file.
pub(super) async fn state(connection: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(STATE).fetch_one(connection).await
}
