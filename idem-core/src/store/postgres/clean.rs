//! The statements that remove a handler's state from a session. If one of them fails, the connection is closed.

/// Between two handlers of a batch, in their transaction: the role, all settings, cursors, temporary tables and the session's
/// sequence values.
pub(super) const RESET: &str =
    "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; DISCARD TEMP; DISCARD SEQUENCES";

/// Follows the end of each transaction that a handler has used, in the same string. Its last statement returns true.
pub(super) const CLEAN: &str = "; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD TEMP; \
                                EXECUTE idem_clean";

/// Prepares the statement that releases a handler's locks, once per connection. If a handler has removed all prepared
/// statements, idem's would be missing for the next message: then this one fails.
pub(super) const PREPARE: &str =
    "PREPARE idem_clean AS SELECT pg_catalog.pg_advisory_unlock_all()::pg_catalog.text = ''";
