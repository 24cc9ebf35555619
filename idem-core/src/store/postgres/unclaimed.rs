//! Transactions in which messages run without claims.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};

use crate::store::StoreError;

use super::begin;
use super::limits::OWN;
use super::pool::Pool;
use super::sql::Statements;
use super::txn::{Txn, not_answered};

/// Begins for a handler whose message has no claim.
pub(super) async fn begin_guarded(pool: &Pool, handler_timeout: Duration) -> Result<Txn, StoreError> {
    let mut connection = pool.lent().await?;
    let text = begin::guarded(connection.session(), connection.kind(), handler_timeout);
    let begun = connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await?;
    let mut txn = Txn::of(connection, handler_timeout);
    let begun = begun.last().ok_or_else(not_answered)?;
    txn.guard(begun.try_get(0)?, None);
    Ok(txn)
}

/// Guards a transaction that several handlers share, unless new claims guard it already.
pub(super) async fn guard(statements: &Statements, txn: &mut Txn) -> Result<(), StoreError> {
    if txn.batch {
        return Ok(());
    }
    // As the server has shown it.
    let lock_timeout = format!("'{}'", txn.lock_timeout());
    let rows = txn.ask_text(statements.mark_batch.with(&[lock_timeout])).await?;
    let row = rows.last().ok_or_else(not_answered)?;
    if txn.xid.is_none() {
        txn.guard(row.try_get(0)?, None);
    }
    txn.guard_batch();
    Ok(())
}
