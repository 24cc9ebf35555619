//! The statements that take out of a session what a handler has left in it.

/// Everything that a handler can set, its role, its cursors, its temporary tables and what it knows of sequences.
pub(super) const RESET: &str =
    "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; DISCARD TEMP; DISCARD SEQUENCES";

/// What `RESET ALL` leaves.
pub(super) const UNDO: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; UNLISTEN *; CLOSE ALL; DISCARD TEMP";

/// Whether there is a statement that a handler has prepared by SQL. Those of sqlx are none.
pub(super) const PREPARED: &str = "EXISTS (
    SELECT FROM pg_catalog.pg_prepared_statements WHERE from_sql AND NOT pg_catalog.starts_with(name, 'idem_'))";

/// Removes them, and leaves idem's own.
pub(super) const DEALLOCATE: &str = "DO $$ DECLARE prepared name; BEGIN
    FOR prepared IN
        SELECT name FROM pg_catalog.pg_prepared_statements WHERE from_sql AND NOT pg_catalog.starts_with(name, 'idem_')
    LOOP
        EXECUTE pg_catalog.format('DEALLOCATE %I', prepared);
    END LOOP;
END $$";
