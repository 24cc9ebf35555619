//! The statements that remove a handler's state from a session.

/// Resets all settings, the role, cursors, temporary tables and the session's sequence values.
pub(super) const RESET: &str =
    "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; DISCARD TEMP; DISCARD SEQUENCES";

/// Resets the state that survives `RESET ALL`.
pub(super) const UNDO: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; UNLISTEN *; CLOSE ALL; DISCARD TEMP";

/// Whether a handler has prepared a statement by SQL. Statements that sqlx prepares do not count.
pub(super) const PREPARED: &str = "EXISTS (
    SELECT FROM pg_catalog.pg_prepared_statements WHERE from_sql AND NOT pg_catalog.starts_with(name, 'idem_'))";

/// Deallocates them, except idem's own.
pub(super) const DEALLOCATE: &str = "DO $$ DECLARE prepared name; BEGIN
    FOR prepared IN
        SELECT name FROM pg_catalog.pg_prepared_statements WHERE from_sql AND NOT pg_catalog.starts_with(name, 'idem_')
    LOOP
        EXECUTE pg_catalog.format('DEALLOCATE %I', prepared);
    END LOOP;
END $$";
