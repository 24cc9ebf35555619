//! ROLLBACK, and the question how a handler has ended its transaction.

use sqlx::Row as _;

use crate::BoxError;
use crate::store::{RollbackResult, StoreError};

use super::answer::Failure;
use super::connection::Answer;
use super::fate::roll_back_prepared;
use super::txn::{Txn, not_answered};

/// Ends the open transaction, and asks for the status of the transaction that made the claim. The error: it is not known.
async fn fate(mut txn: Txn) -> Result<RollbackResult, BoxError> {
    let xid = txn.xid.take().unwrap_or_default();
    let ours = format!("pg_catalog.pg_current_xact_id_if_assigned() IS NOT DISTINCT FROM '{xid}'::pg_catalog.xid8");
    let status = format!("SELECT pg_catalog.pg_xact_status('{xid}'::pg_catalog.xid8){}", txn.cleaning());
    let text = format!("SELECT {ours}; ROLLBACK; {status}");
    let mut answer = txn.connection.run(text).await;
    if answer.failure.as_ref().and_then(Failure::code) == Some("25P02") {
        // An aborted transaction cannot be asked for its id; it is assumed to be the one that made the claim.
        let text = format!("ROLLBACK; SELECT true; {status}");
        answer = txn.connection.run(text).await;
    }
    let Answer { finished, rows, failure } = answer;
    // An error after these three statements is one of the cleanup, and the connection is closed.
    if let Some(failure) = failure.filter(|_| finished < 3) {
        return Err(failure.into_error());
    }
    let ended = !rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
    let status = rows.get(1).and_then(|row| row.try_get::<Option<String>, _>(0).ok().flatten());
    match status.as_deref() {
        // The session of a handler that ends transactions is in an unknown state: it is closed.
        Some("aborted") if ended => Ok(RollbackResult::Ended),
        Some("aborted") => {
            txn.put_back(&rows);
            Ok(RollbackResult::RolledBack)
        }
        Some("committed") => Ok(RollbackResult::CommittedEarly),
        Some("in progress") => match roll_back_prepared(&mut txn.connection, &xid).await {
            Ok(true) => Ok(RollbackResult::Ended),
            Ok(false) => Err("the handler ended its transaction, which still runs".into()),
            Err(failure) => Err(failure.into_error()),
        },
        // Too old to be known.
        other => {
            let state = other.unwrap_or("not known");
            Err(format!("the transaction was ended by its handler, and is {state}").into())
        }
    }
}

/// Rolls back. An answer to ROLLBACK shows that the connection is alive.
pub(super) async fn rollback(mut txn: Txn) -> Result<RollbackResult, StoreError> {
    if !txn.connection.is_usable() {
        return Err(not_answered());
    }
    txn.connection.flush().await?;
    if txn.xid.is_some() {
        let counted = txn.connection.counts_transaction();
        return match fate(txn).await {
            Ok(RollbackResult::RolledBack | RollbackResult::Ended) if !counted => Ok(RollbackResult::Unbegun),
            ended => ended.map_err(StoreError::ConnectionLost),
        };
    }
    let text = format!("ROLLBACK{}", txn.cleaning());
    match txn.connection.text(text).await {
        Ok(rows) => {
            txn.put_back(&rows);
            Ok(RollbackResult::RolledBack)
        }
        // An error is an answer, too; the connection is closed, since its state is unexpected.
        Err(Failure::Refused(_)) => Ok(RollbackResult::RolledBack),
        Err(lost) => Err(lost.into()),
    }
}
