//! The statements that remove a handler's state from a session.

/// Resets all settings, the role, cursors, temporary tables and the session's sequence values.
pub(super) const RESET: &str =
    "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; DISCARD TEMP; DISCARD SEQUENCES";

/// Follows the end of each transaction that a handler has used. Where nothing is left, CLOSE and UNLISTEN cost the server less
/// than a look for cursors and channels. The last statement looks for what is left, and is prepared once per connection.
pub(super) const CLEAN: &str = "; RESET ALL; CLOSE ALL; UNLISTEN *; EXECUTE idem_clean";

/// Resets the state that survives [`CLEAN`].
pub(super) const UNDO: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; DISCARD TEMP";

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
