//! The check before each COMMIT: whether the transaction is still the one that made the claim.

/// The text that distinguishes the guard's own error from a handler's.
pub(super) const ENDED: &str = "idem: the handler ended the transaction";

/// The text of the error if a handler left changed settings for the other handlers of its transaction.
pub(super) const CHANGED: &str = "idem: a handler changed the role or a setting, or left a temporary table, which would affect \
                                  later handlers of the batch";

/// Returns a statement that raises an error unless the current transaction has this id, and `same` holds if given. It
/// also sets the level of durability again if the handler has changed it.
pub(super) fn check(xid: &str, same: Option<&str>, durable: Option<&str>) -> String {
    // Casting a text that is not a number is how plain SQL raises a custom error; `concat` is not immutable, which
    // keeps the planner from raising it beforehand (PostgreSQL manual, 4.2.14).
    let mut check = format!(
        "SELECT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned() IS DISTINCT FROM {xid}
             THEN pg_catalog.concat('{ENDED}')::int "
    );
    if let Some(same) = same {
        check += &format!("WHEN NOT ({same}) THEN pg_catalog.concat('{CHANGED}')::int ");
    }
    if let Some(level) = durable {
        check += &format!(
            "WHEN pg_catalog.current_setting('synchronous_commit') <> '{level}'
             THEN pg_catalog.length(pg_catalog.set_config('synchronous_commit', '{level}', true)) "
        );
    }
    check + "ELSE 1 END"
}

/// Prepared once per connection, since the server would otherwise plan them for each message.
pub(super) fn guards(same: &str, durable: Option<&str>) -> String {
    format!(
        "PREPARE idem_guard (pg_catalog.xid8) AS {}; PREPARE idem_guard_shared (pg_catalog.xid8) AS {}",
        check("$1", None, durable),
        check("$1", Some(same), durable)
    )
}
