//! The question before each COMMIT: whether the transaction is still the one that made the claim.

/// The text by which the guard's own error is known from a handler's.
pub(super) const ENDED: &str = "idem: the handler ended the transaction";

/// The text by which it is known that a handler has left settings behind for those that share its transaction.
pub(super) const CHANGED: &str =
    "idem: a handler changed the role or a setting, or left a temporary table, for those behind it";

/// Raises an error unless the transaction is that of the number, and the condition holds where there is one. It sets the
/// level of durability again, which the handler may have set for its transaction.
pub(super) fn check(xid: &str, same: Option<&str>, durable: Option<&str>) -> String {
    // The cast of a text that is no number is how plain SQL raises an error of one's own; `concat` is not immutable,
    // which keeps the planner from raising it beforehand (PostgreSQL manual, 4.2.14).
    let mut check = format!(
        "SELECT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned() IS DISTINCT FROM {xid}
             THEN pg_catalog.concat('{ENDED}')::int "
    );
    if let Some(same) = same {
        check += &format!("WHEN NOT ({same}) THEN pg_catalog.concat('{CHANGED}')::int ");
    }
    check += "ELSE 1 END";
    if let Some(level) = durable {
        check += &format!(", pg_catalog.set_config('synchronous_commit', '{level}', true)");
    }
    check
}

/// Prepared for the life of a connection, since the server would plan them anew for each message.
pub(super) fn guards(same: &str, durable: Option<&str>) -> String {
    format!(
        "PREPARE idem_guard (pg_catalog.xid8) AS {}; PREPARE idem_guard_shared (pg_catalog.xid8) AS {}",
        check("$1", None, durable),
        check("$1", Some(same), durable)
    )
}
