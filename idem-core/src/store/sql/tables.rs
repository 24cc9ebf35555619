//! The columns that idem's tables must have. A store checks them at its start instead of failing at each statement.

use crate::Error;

/// A table, and the columns that it must have, separated by spaces.
pub(crate) type Table = (&'static str, &'static str);

/// The tables of both databases.
pub(crate) const TABLES: [Table; 12] = [
    ("migrations", "version name supports applied_at"),
    ("handlers", "id consumer name retention pruned_through seen_at"),
    ("former_names", "handler_id name"),
    ("processed_messages", "processed_at handler_id key fingerprint"),
    ("replies", "handler_id key created_at status headers body"),
    (
        "inbox_messages",
        "id created_at run_at died_at deliveries handler_id crash_count attempts lost_connections state locked_by locked_until \
         reason key fingerprint envelope payload error provider_key called_at called_by call_name asked_at answer",
    ),
    ("call_namespaces", "handler_id namespace"),
    ("outboxes", "id name namespace locked_by locked_until lease relay_seen_at"),
    ("outbox_messages", "outbox_id id message_id created_at run_at attempts destination key envelope payload error"),
    ("outbox_dead", "outbox_id id message_id created_at died_at attempts destination key envelope payload error"),
    ("operations", "id at command action actor role handler_id outbox_id row_id key reason attempts error"),
    ("workers", "instance kind name host pid version started_at seen_at report"),
];

/// The error for a missing part.
pub(crate) fn lacks(place: &str, remedy: &str, what: &str) -> Error {
    Error::Config(format!(
        "{place} lacks {what}, although its migrations have run: it was made by another version of them, changed by hand or \
         restored in part; {remedy}"
    ))
}
