//! The trigger that refuses a COMMIT by a handler in a batch.

use sqlx::Row as _;

use crate::Error;
use crate::store::tables;

use super::answer::Failure;
use super::connection::Connection;
use super::cure::{CURE, place};
use super::statement::quoted;

/// Checks the trigger. Without it, a COMMIT of a handler would lose the later messages of its batch. It has to be enabled as
/// ALWAYS, which `pg_restore --disable-triggers` does not do: otherwise a handler that may set `session_replication_role`
/// turns it off.
pub(super) async fn check(connection: &mut Connection, schema: &str) -> Result<Result<(), Error>, Failure> {
    let asked = sqlx::query(
        "SELECT t.tgenabled::text FROM pg_catalog.pg_trigger AS t
         JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = $1 AND c.relname = 'processed_messages' AND t.tgname = 'refuse_commit' AND t.tgdeferrable",
    );
    let rows = connection.autocommit(asked.bind(schema)).await?;
    let enabled: Option<String> = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(is_enabled(schema, enabled.as_deref()))
}

fn is_enabled(schema: &str, enabled: Option<&str>) -> Result<(), Error> {
    let Some(enabled) = enabled else {
        let trigger = "the deferrable trigger `refuse_commit` of the table `processed_messages`";
        return Err(tables::lacks(&place(schema), CURE, trigger));
    };
    if enabled == "A" {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the trigger refuse_commit of the schema {schema:?} is not enabled as ALWAYS, so a COMMIT by a handler can lose other \
         messages of its batch: as the owner of the table, run ALTER TABLE {}.processed_messages ENABLE ALWAYS TRIGGER \
         refuse_commit",
        quoted(schema)
    )))
}
