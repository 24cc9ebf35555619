//! Transactions in which messages run without claims.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};

use crate::store::StoreError;

use super::begin;
use super::limits::OWN;
use super::pool::Pool;
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

/// Guards a transaction that several handlers share, unless new claims guard it already. A COMMIT is not refused: messages
/// without claims run again.
pub(super) async fn guard(txn: &mut Txn) -> Result<(), StoreError> {
    if txn.xid.is_some() {
        return Ok(());
    }
    // As the claims of a batch do, it restores the session's lock timeout for the handlers, as the server has shown it.
    let lock_timeout = txn.lock_timeout();
    let text = format!("SELECT pg_catalog.pg_current_xact_id()::text; SET LOCAL lock_timeout = '{lock_timeout}'");
    let rows = txn.ask_text(text).await?;
    let xid = rows.first().ok_or_else(not_answered)?.try_get(0)?;
    txn.guard(xid, None);
    Ok(())
}
