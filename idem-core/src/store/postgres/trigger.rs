//! The triggers: one refuses a COMMIT by a handler in a batch, and one keeps a message that has the answer of its call from an
//! older version of idem.

use sqlx::Row as _;

use crate::Error;
use crate::store::tables::{self, LEAVE_ANSWER};

use super::answer::Failure;
use super::connection::Connection;
use super::cure::{CURE, place};
use super::statement::quoted;

/// Checks the triggers. Without the first, a COMMIT of a handler would lose the later messages of its batch; without the second,
/// an older version could pay once more. Both have to be checked beforehand.
pub(super) async fn check(connection: &mut Connection, schema: &str) -> Result<Result<(), Error>, Failure> {
    let asked = sqlx::query(
        "SELECT t.tgname::text, t.tgenabled::text FROM pg_catalog.pg_trigger AS t
         JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = $1 AND (
             c.relname = 'processed_messages' AND t.tgname = 'refuse_commit' AND t.tgdeferrable
             OR c.relname = 'inbox_messages' AND t.tgname = 'leave_answer')",
    );
    let (mut refuse_commit, mut leave_answer) = (None, None);
    for row in connection.autocommit(asked.bind(schema)).await? {
        let (name, enabled): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        match name.as_str() {
            "refuse_commit" => refuse_commit = Some(enabled),
            _ => leave_answer = Some(enabled),
        }
    }
    let checked = check_refuse_commit(schema, refuse_commit.as_deref());
    Ok(checked.and_then(|()| check_leave_answer(schema, leave_answer.as_deref())))
}

/// A trigger that is enabled, but not as ALWAYS, is only a warning: `pg_restore --disable-triggers` leaves it so, and a
/// handler needs a privilege to set `session_replication_role`, which turns it off.
fn check_refuse_commit(schema: &str, enabled: Option<&str>) -> Result<(), Error> {
    let Some(enabled) = enabled else {
        let trigger = "the deferrable trigger `refuse_commit` of the table `processed_messages`";
        return Err(tables::lacks(&place(schema), CURE, trigger));
    };
    let cure = format!(
        "as the owner of the table, run ALTER TABLE {}.processed_messages ENABLE ALWAYS TRIGGER refuse_commit",
        quoted(schema)
    );
    match enabled {
        "A" => {}
        "O" => tracing::warn!(
            "the trigger refuse_commit of the schema {schema:?} is not enabled as ALWAYS, so a handler that sets \
             session_replication_role turns it off, and its COMMIT can then lose other messages of its batch: {cure}"
        ),
        _ => {
            return Err(Error::Config(format!(
                "the trigger refuse_commit of the schema {schema:?} is disabled, so a COMMIT by a handler can lose other \
                 messages of its batch: {cure}"
            )));
        }
    }
    Ok(())
}

/// It fires only in idem's own statements, none of which runs with another `session_replication_role`.
fn check_leave_answer(schema: &str, enabled: Option<&str>) -> Result<(), Error> {
    match enabled {
        None => Err(tables::lacks(&place(schema), CURE, LEAVE_ANSWER)),
        Some("O" | "A") => Ok(()),
        Some(_) => Err(Error::Config(format!(
            "the trigger leave_answer of the schema {schema:?} is disabled, so a worker with a version of idem from before \
             external calls can run a message whose call was made, and pay again: as the owner of the table, run ALTER TABLE \
             {}.inbox_messages ENABLE TRIGGER leave_answer",
            quoted(schema)
        ))),
    }
}
