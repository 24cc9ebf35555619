//! The transactions of PostgreSQL: begun, guarded, checked.

use std::time::Duration;

use sqlx::Row as _;
use uuid::Uuid;

use crate::Error;
use crate::store::{CommitResult, ConnectionShare, Fate, RollbackResult, StoreError, Ticket, Transactions, TxnState};

use super::answer::{self, About, Failure};
use super::clean::RESET;
use super::guard::check;
use super::limits::OWN;
use super::quote::bytes;
use super::txn::not_answered;
use super::{Postgres, Txn, begin, claims_sql, commit, rollback};

impl Transactions for Postgres {
    type Txn = Txn;

    fn describe(&self) -> String {
        format!("{}, schema {}", self.0.name, self.schema())
    }

    /// Writes and commits, as a worker does: a database that is read-only, full or without its tables still answers
    /// `SELECT 1`, and consumption would continue and pause for each message. No handler has the id 0.
    async fn ping(&self) -> Result<(), StoreError> {
        let mut connection = self.pool().own_at_once().await?;
        let begin = begin::text(connection.session(), connection.kind(), OWN);
        let probe = self.text_with(claims_sql::PING, &[bytes(Uuid::new_v4().as_bytes())]);
        connection.text(format!("{begin} {probe}; COMMIT")).await?;
        connection.put_back();
        Ok(())
    }

    fn share_connections(&self, connections: usize) -> Result<ConnectionShare, Error> {
        Ok(self.0.shares.add(connections))
    }

    async fn begin(&self, handler_timeout: Duration) -> Result<Txn, StoreError> {
        let mut connection = self.pool().lent().await?;
        let text = begin::lent(connection.session(), connection.kind(), handler_timeout);
        // On any failure the connection is dropped: a transaction may be open in it.
        connection.text(text).await?;
        Ok(Txn::of(connection, handler_timeout))
    }

    async fn begin_guarded(&self, handler_timeout: Duration) -> Result<Txn, StoreError> {
        let mut connection = self.pool().lent().await?;
        let text = begin::guarded(connection.session(), connection.kind(), handler_timeout);
        let begun = connection.text(text).await?;
        let mut txn = Txn::of(connection, handler_timeout);
        txn.guard(begun.last().ok_or_else(not_answered)?.try_get(0)?, None);
        Ok(txn)
    }

    /// New claims guard the transaction already. A COMMIT is not refused: messages without claims run again.
    async fn guard(&self, txn: &mut Txn) -> Result<(), StoreError> {
        if txn.xid.is_some() {
            return Ok(());
        }
        // As the claims of a batch do, it restores the session's lock timeout for the handlers, as the server has shown it.
        let lock_timeout = txn.lock_timeout();
        let text = format!("SELECT pg_catalog.pg_current_xact_id()::text; SET LOCAL lock_timeout = '{lock_timeout}'");
        txn.fresh = false;
        let rows = txn.connection.text(text).await.map_err(|failure| failure.fault(About::Messages))?;
        txn.guard(rows.first().ok_or_else(not_answered)?.try_get(0)?, None);
        Ok(())
    }

    /// If nothing can be written outside of idem's transactions, the guard alone checks whether it is still open.
    ///
    /// Behind a pooler nobody knows that. A ROLLBACK of the handler gives its session back, and the pooler lends another one to
    /// the next statement, which may be one that another client has made writable.
    async fn check_between(&self, txn: &mut Txn) -> Result<TxnState, StoreError> {
        txn.shared = true;
        if !txn.connection.counts_transaction() {
            return Ok(TxnState::Ended);
        }
        let resets = txn.connection.resets();
        if !txn.connection.is_pooled() && txn.connection.session().read_only && !resets {
            return Ok(TxnState::Unknown);
        }
        let Some(xid) = &txn.xid else { return Ok(TxnState::Unknown) };
        let mut text = check(&format!("'{xid}'::pg_catalog.xid8"), None, None);
        if resets {
            // RESET ALL removes the limits of this transaction as well.
            let session = txn.connection.session();
            let lasting = if txn.connection.is_pooled() { session.lasting() } else { "" };
            let limits = begin::limits(session, txn.connection.kind(), txn.handler_timeout, &session.lock_timeout);
            text += &format!("; {RESET};{lasting} {limits}");
        }
        if !txn.connection.is_usable() {
            return Err(not_answered());
        }
        txn.connection.flush().await?;
        match txn.connection.text(text).await {
            Ok(_) => Ok(TxnState::Open),
            Err(Failure::Refused(_)) => Ok(TxnState::Ended),
            Err(lost) => Err(lost.into()),
        }
    }

    async fn commit(&self, txn: Txn) -> CommitResult {
        commit::commit(self, txn).await
    }

    fn lost_race(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        answer::is_lost_race(error)
    }

    fn deadlocked(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        answer::is_deadlock(error)
    }

    fn failed_with(&self, txn: &mut Txn, error: &(dyn std::error::Error + 'static)) -> bool {
        let outdated = answer::is_outdated(error);
        txn.outdated |= outdated;
        outdated && txn.connection.was_lent_before()
    }

    async fn rollback(&self, txn: Txn) -> Result<RollbackResult, StoreError> {
        rollback::rollback(txn).await
    }

    fn ticket(&self, txn: &Txn) -> Option<Ticket> {
        txn.ticket()
    }

    async fn fate(&self, ticket: &Ticket) -> Result<Fate, StoreError> {
        self.fate_of(ticket).await
    }
}
