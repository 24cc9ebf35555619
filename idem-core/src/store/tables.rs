//! The columns that idem's tables must have. A store checks them at its start instead of failing at each statement.

use std::collections::HashMap;

use crate::Error;

/// A table, and the columns that it must have.
pub(crate) type Table = (&'static str, &'static [&'static str]);

/// The tables that every worker uses.
pub(crate) const TABLES: [Table; 5] = [
    ("migrations", &["version", "name", "supports", "applied_at"]),
    ("handlers", &["id", "consumer", "name", "retention", "pruned_through", "seen_at"]),
    ("former_names", &["handler_id", "name"]),
    ("processed_messages", &["processed_at", "handler_id", "key", "fingerprint"]),
    (
        "inbox_messages",
        &[
            "id",
            "created_at",
            "due_at",
            "died_at",
            "deliveries",
            "handler_id",
            "starts",
            "attempts",
            "breaks",
            "token",
            "state",
            "reason",
            "key",
            "fingerprint",
            "envelope",
            "payload",
            "error",
            "outbound",
            "called_at",
            "called_by",
            "call_name",
            "asked_at",
            "answer",
        ],
    ),
];

/// The trigger by which a version of idem from before external calls takes no message that has an answer, for an error.
pub(crate) const LEAVE_ANSWER: &str = "the trigger `leave_answer` of the table `inbox_messages` (in 0004_calls.sql)";

/// Tables that only some workers use. They are checked where they are used.
pub(crate) struct OptionalTables {
    /// The number of the migration that creates them.
    pub(crate) migration: i64,
    /// Its file.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite always runs each migration"))]
    pub(crate) file: &'static str,
    /// What uses them.
    pub(crate) needed_by: &'static str,
    pub(crate) tables: &'static [Table],
}

/// The tables of the outbox.
pub(crate) const OUTBOX: OptionalTables =
    OptionalTables { migration: 2, file: "0002_outbox.sql", needed_by: "an outbox", tables: &OUTBOX_TABLES };

/// The table of the namespaces of external calls.
pub(crate) const CALL_NAMESPACES: OptionalTables = OptionalTables {
    migration: 5,
    file: "0005_call_namespaces.sql",
    needed_by: "a handler that makes an external call",
    tables: &[("call_namespaces", &["handler_id", "namespace"])],
};

impl OptionalTables {
    /// Returns the tables that a migration creates, if only some workers use them.
    pub(crate) fn of(migration: i64) -> Option<&'static Self> {
        [&OUTBOX, &CALL_NAMESPACES].into_iter().find(|tables| tables.migration == migration)
    }
}

const OUTBOX_TABLES: [Table; 5] = [
    ("outboxes", &["id", "name", "namespace"]),
    (
        "outbox_messages",
        &[
            "outbox_id",
            "lane",
            "id",
            "message_id",
            "created_at",
            "due_at",
            "attempts",
            "destination",
            "key",
            "envelope",
            "payload",
            "error",
        ],
    ),
    ("outbox_relays", &["outbox_id", "token", "alive_until"]),
    ("outbox_lanes", &["outbox_id", "lane", "token", "leased_until"]),
    (
        "outbox_dead",
        &[
            "outbox_id",
            "lane",
            "id",
            "message_id",
            "created_at",
            "died_at",
            "attempts",
            "destination",
            "key",
            "envelope",
            "payload",
            "error",
        ],
    ),
];

/// Returns an error if a table or column is missing. `found` has the columns of each table; `place` is the name of the
/// schema or file, and `cure` tells how to create a missing part.
pub(crate) fn check(
    place: &str,
    cure: &str,
    tables: &[(&str, &[&str])],
    found: &HashMap<String, Vec<String>>,
) -> Result<(), Error> {
    for (table, columns) in tables {
        let Some(there) = found.get(*table) else { return Err(lacks(place, cure, &format!("the table `{table}`"))) };
        if let Some(column) = columns.iter().find(|column| !there.iter().any(|there| there == *column)) {
            return Err(lacks(place, cure, &format!("the column `{column}` of the table `{table}`")));
        }
    }
    Ok(())
}

/// The error for a missing part.
pub(crate) fn lacks(place: &str, cure: &str, what: &str) -> Error {
    Error::Config(format!(
        "{place} lacks {what}, although its migrations have run: it was made by another version of them, changed by hand or \
         restored in part; {cure}"
    ))
}
