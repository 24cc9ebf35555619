//! The transactions of PostgreSQL.

use std::time::Duration;

use crate::Error;
use crate::store::{CommitResult, Fate, Reservation, RollbackResult, StoreError, Ticket, Transactions};

use super::{Postgres, Txn, answer, commit, ping, txn};

impl Transactions for Postgres {
    type Txn = Txn;

    fn describe(&self) -> String {
        format!("{self:?}")
    }

    async fn ping(&self) -> Result<(), StoreError> {
        ping::ping(self).await
    }

    fn reserve(&self, connections: usize) -> Result<Reservation, Error> {
        Reservation::of(&self.0.left, connections).ok_or_else(|| {
            let taken = self.0.connections.saturating_sub(self.0.left.available_permits());
            Error::Config(format!(
                "the worker needs {connections} connections at once, and the store has {} of which {taken} are set aside: \
                 give the store `.connections({})` or more, or the worker less `.concurrency(..)`",
                self.0.connections,
                taken.saturating_add(connections)
            ))
        })
    }

    async fn begin(&self, deadline: Duration) -> Result<Txn, StoreError> {
        txn::begin(self.pool(), deadline).await
    }

    async fn between(&self, txn: &mut Txn) -> Result<bool, StoreError> {
        txn::between(txn).await
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

    async fn rollback(&self, txn: Txn) -> Result<RollbackResult, StoreError> {
        commit::rollback(txn).await
    }

    fn ticket(&self, txn: &Txn) -> Option<Ticket> {
        txn.ticket()
    }

    async fn fate(&self, ticket: &Ticket) -> Result<Fate, StoreError> {
        self.fate_of(ticket).await
    }
}
