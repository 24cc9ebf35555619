//! ROLLBACK, and how a transaction ended: one that its handler has ended or prepared, or whose connection was dropped.

use std::sync::Once;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::BoxError;
use crate::store::{StoreError, TxnHandle, TxnOutcome};

use super::answer::Failure;
use super::connection::{Answer, Connection};
use super::limits::Use;
use super::quote::literal;
use super::txn::{Txn, not_answered};
use super::{Postgres, claims_sql};

/// Ends the open transaction, and asks for the status of the transaction that made the claim. The error: it is not known.
async fn txn_outcome(mut txn: Txn) -> Result<TxnOutcome, BoxError> {
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
        Some("aborted") if ended => Ok(TxnOutcome::Ended),
        Some("aborted") => {
            txn.put_back(&rows);
            Ok(TxnOutcome::RolledBack)
        }
        Some("committed") => Ok(TxnOutcome::CommittedEarly),
        Some("in progress") => match roll_back_prepared(&mut txn.connection, &xid).await {
            Ok(true) => Ok(TxnOutcome::Ended),
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
pub(super) async fn rollback(mut txn: Txn) -> Result<TxnOutcome, StoreError> {
    if !txn.connection.sound {
        return Err(not_answered());
    }
    txn.connection.flush().await?;
    if txn.xid.is_some() {
        let counted = txn.connection.counts_transaction();
        return match txn_outcome(txn).await {
            Ok(TxnOutcome::RolledBack | TxnOutcome::Ended) if !counted => Ok(TxnOutcome::Unbegun),
            ended => ended.map_err(StoreError::ConnectionLost),
        };
    }
    let text = format!("ROLLBACK{}", txn.cleaning());
    match txn.connection.text(text).await {
        Ok(rows) => {
            txn.put_back(&rows);
            Ok(TxnOutcome::RolledBack)
        }
        // An error is an answer, too; the connection is closed, since its state is unexpected.
        Err(Failure::Refused(_)) => Ok(TxnOutcome::RolledBack),
        Err(lost) => Err(lost.into()),
    }
}

const STATUS: &str = "SELECT pg_catalog.pg_xact_status($1::text::pg_catalog.xid8)";

impl Postgres {
    /// Returns the outcome of a transaction of another connection. One that still runs holds the claim until the server notices
    /// that its client is gone, within a second. One that its handler has prepared is rolled back.
    pub(super) async fn txn_outcome_of(&self, txn_handle: &TxnHandle) -> Result<TxnOutcome, StoreError> {
        let mut connection = self.0.pool.connection(Use::Own).await?;
        let asked = sqlx::query(STATUS).bind(&txn_handle.number);
        let rows = match connection.autocommit(asked).await {
            Ok(rows) => rows,
            // 22023: the id is in the future of this server, which took over from a server that was ahead. The
            // transaction never happened here.
            Err(failure) if failure.code() == Some("22023") => return Ok(TxnOutcome::RolledBack),
            Err(failure) => return Err(failure.into()),
        };
        let status: Option<String> = rows.first().map_or(Ok(None), |row: &PgRow| row.try_get(0))?;
        let txn_outcome = match status.as_deref() {
            // In a separate statement: the snapshot of the first one may be older than the commit.
            Some("committed") if self.is_ours(&mut connection, txn_handle).await? => TxnOutcome::CommittedEarly,
            Some("in progress") => match roll_back_prepared(&mut connection, &txn_handle.number).await {
                Ok(true) => TxnOutcome::Ended,
                Ok(false) => TxnOutcome::Running,
                // It may not be prepared at all: a role may lack the privilege to look.
                Err(Failure::Refused(_)) => return Ok(TxnOutcome::Running),
                Err(lost) => return Err(lost.into()),
            },
            // Aborted; or the id was reused by another transaction; or it is too old to be known, and then the claim
            // decides.
            _ => TxnOutcome::RolledBack,
        };
        connection.put_back();
        Ok(txn_outcome)
    }

    /// Returns whether a committed transaction with the number of the handle is the one that the handle means. A server that
    /// crashed knows only the transactions in its log, and the log is flushed at a commit (PostgreSQL manual, 30.3), so it may
    /// reuse the id of a transaction that was open. The claim is unambiguous: it carries the id.
    ///
    /// Without a claim, nothing is known, and the message of a natural handler counts as not run: it runs again.
    async fn is_ours(&self, connection: &mut Connection, txn_handle: &TxnHandle) -> Result<bool, Failure> {
        let Some((handler, key)) = &txn_handle.claim else {
            return Ok(false);
        };
        let query = self.query(claims_sql::STANDS).bind(handler.0).bind(key.as_bytes()).bind(&txn_handle.number);
        Ok(!connection.autocommit(query).await?.is_empty())
    }
}

/// Rolls back a transaction that a handler prepared for another session to commit (PREPARE TRANSACTION), if the one with this
/// number is prepared. No session holds it, and it keeps its claim locked until somebody ends it. Returns whether it was.
///
/// Only the role that prepared it may do so, or a superuser, and a handler may have taken another role before or after.
/// The connection has that role then, and is closed when it is put back.
async fn roll_back_prepared(connection: &mut Connection, number: &str) -> Result<bool, Failure> {
    let find = format!(
        "SELECT pg_catalog.format('ROLLBACK PREPARED %L', gid),
             pg_catalog.format('RESET SESSION AUTHORIZATION; SET ROLE %I', owner)
         FROM pg_catalog.pg_prepared_xacts
         WHERE transaction = ({}::pg_catalog.xid8)::pg_catalog.xid AND database = pg_catalog.current_database()",
        literal(number)
    );
    let rows = connection.text(find).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let (end, own): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let mut ended = connection.text(&*end).await;
    // A pooler's session keeps no role.
    if ended.as_ref().is_err_and(|failure| failure.code() == Some("42501")) && !connection.is_pooled() {
        connection.text(own).await?;
        ended = connection.text(&*end).await;
    }
    if let Err(failure @ Failure::Refused(_)) = &ended {
        LOGGED.call_once(|| tracing::error!(error = ?failure, "a handler ran PREPARE TRANSACTION, and idem cannot undo it, so that its message is parked: run {end}"));
    }
    ended.map(|_| true)
}

/// Logs only once, because the caller retries.
static LOGGED: Once = Once::new();
