//! The transactions of PostgreSQL.

use std::time::Duration;

use crate::Error;
use crate::store::{CommitResult, ConnectionShare, Fate, RollbackResult, StoreError, Ticket, Transactions, TxnState};

use super::{Postgres, Txn, answer, commit, ping, rollback, txn, unclaimed};

impl Transactions for Postgres {
    type Txn = Txn;

    fn describe(&self) -> String {
        format!("{}, schema {}", self.0.name, self.schema())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        ping::ping(self).await
    }

    fn share_connections(&self, connections: usize) -> Result<ConnectionShare, Error> {
        Ok(self.0.shares.add(connections))
    }

    async fn begin(&self, handler_timeout: Duration) -> Result<Txn, StoreError> {
        txn::begin(self.pool(), handler_timeout).await
    }

    async fn begin_guarded(&self, handler_timeout: Duration) -> Result<Txn, StoreError> {
        unclaimed::begin_guarded(self.pool(), handler_timeout).await
    }

    async fn guard(&self, txn: &mut Txn) -> Result<(), StoreError> {
        unclaimed::guard(txn).await
    }

    async fn check_between(&self, txn: &mut Txn) -> Result<TxnState, StoreError> {
        txn::check_between(txn).await
    }

    async fn commit(&self, txn: Txn) -> CommitResult {
        commit::commit(txn).await
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
