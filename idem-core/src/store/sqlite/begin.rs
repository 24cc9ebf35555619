//! BEGIN, alone or as one command with the statements that follow it. Each command of a connection is handed to its
//! thread and answered from there, which costs more than most statements.

use std::time::Duration;

use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use super::file::{Answer, BUSY_TIMEOUT};
use super::{Sqlite, Txn};
use crate::store::StoreError;

/// Begins by a command of `count` statements, the first of which is BEGIN, and returns the answer to the others. The
/// handler timeout starts when this is the writer.
pub(super) async fn begin(
    store: &Sqlite,
    handler_timeout: Duration,
    count: usize,
    command: Query<'_, sqlx::Sqlite, SqliteArguments>,
) -> Result<(Txn, Answer), StoreError> {
    let mut connection = store.file.writer().await?;
    // BEGIN may wait for another process, which takes none of the handler's time.
    connection.watch().limit(handler_timeout.saturating_add(BUSY_TIMEOUT));
    let mut answer = connection.run_all(count, command).await;
    if answer.finished == 0
        && let Some(error) = answer.error.take()
    {
        let fault = store.file.fault(error);
        if matches!(fault, StoreError::LockTimeout) {
            connection.watch().limit(Duration::MAX);
            connection.give_back();
        }
        return Err(fault);
    }
    connection.watch().limit(handler_timeout);
    Ok((Txn::of(connection), answer))
}
