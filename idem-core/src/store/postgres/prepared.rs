//! Transactions that a handler prepared for another session to commit (PREPARE TRANSACTION). No session holds them, and
//! they keep their claim locked until somebody ends them.

use std::sync::Once;

use sqlx::{AssertSqlSafe, Row as _};

use super::answer::Failure;
use super::connection::Connection;
use super::limits::OWN;
use super::state::literal;

/// Rolls back the transaction with this number if it is prepared. Returns whether it was.
///
/// Only the role that prepared it may do so, or a superuser, and a handler may have taken another role before or after.
/// The connection has that role then, and is closed when it is put back.
pub(super) async fn roll_back(connection: &mut Connection, number: &str) -> Result<bool, Failure> {
    let find = format!(
        "SELECT pg_catalog.format('ROLLBACK PREPARED %L', gid),
             pg_catalog.format('RESET SESSION AUTHORIZATION; SET ROLE %I', owner)
         FROM pg_catalog.pg_prepared_xacts
         WHERE transaction = ({}::pg_catalog.xid8)::pg_catalog.xid AND database = pg_catalog.current_database()",
        literal(number)
    );
    let rows = connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(find))).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let (end, own): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let mut ended = connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(&*end))).await;
    // A pooler's session keeps no role.
    if ended.as_ref().is_err_and(|failure| failure.code() == Some("42501")) && !connection.is_pooled() {
        connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(own))).await?;
        ended = connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(&*end))).await;
    }
    if let Err(failure @ Failure::Refused(_)) = &ended {
        TELL.call_once(|| tracing::error!(error = ?failure, "a handler ran PREPARE TRANSACTION, and idem cannot undo it, so that its message is held: run {end}"));
    }
    ended.map(|_| true)
}

/// Logs only once, because the caller retries.
static TELL: Once = Once::new();
