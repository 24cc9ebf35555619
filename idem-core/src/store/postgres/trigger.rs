//! The trigger that refuses a COMMIT by a handler in a batch.

use sqlx::Row as _;

use crate::Error;
use crate::store::tables;

use super::answer::Failure;
use super::connection::Connection;
use super::cure::{CURE, place};
use super::statement::quoted;

/// Checks the trigger. Without it such a COMMIT would lose the later messages of the batch, so it has to be checked
/// beforehand.
///
/// A trigger that is enabled, but not as ALWAYS, is only a warning: `pg_restore --disable-triggers` leaves it so, and a
/// handler needs a privilege to set `session_replication_role`, which turns it off.
pub(super) async fn check(connection: &mut Connection, schema: &str) -> Result<Result<(), Error>, Failure> {
    let asked = sqlx::query(
        "SELECT t.tgenabled::text FROM pg_catalog.pg_trigger AS t
         JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = $1 AND c.relname = 'processed_messages' AND t.tgname = 'refuse_commit' AND t.tgdeferrable",
    );
    let rows = connection.autocommit(asked.bind(schema)).await?;
    let Some(row) = rows.first() else {
        let trigger = "the deferrable trigger `refuse_commit` of the table `processed_messages`";
        return Ok(Err(tables::lacks(&place(schema), CURE, trigger)));
    };
    let cure = format!(
        "as the owner of the table, run ALTER TABLE {}.processed_messages ENABLE ALWAYS TRIGGER refuse_commit",
        quoted(schema)
    );
    match row.try_get::<String, _>(0)?.as_str() {
        "A" => {}
        "O" => tracing::warn!(
            "the trigger refuse_commit of the schema {schema:?} is not enabled as ALWAYS, so a handler that sets \
             session_replication_role turns it off, and its COMMIT can then lose other messages of its batch: {cure}"
        ),
        _ => {
            return Ok(Err(Error::Config(format!(
                "the trigger refuse_commit of the schema {schema:?} is disabled, so a COMMIT by a handler can lose other \
                 messages of its batch: {cure}"
            ))));
        }
    }
    Ok(Ok(()))
}
