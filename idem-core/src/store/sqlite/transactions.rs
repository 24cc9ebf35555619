//! The transactions of SQLite.

use std::time::Duration;

use super::{Sqlite, Txn, register, txn};
use crate::Error;
use crate::store::{CommitResult, Fate, RollbackResult, Share, StoreError, Ticket, Transactions};

impl Transactions for Sqlite {
    type Txn = Txn;

    fn describe(&self) -> String {
        format!("{self:?}")
    }

    async fn ping(&self) -> Result<(), StoreError> {
        register::ping(self).await
    }

    /// Callers wait in the queue for the writer.
    fn share(&self, connections: usize) -> Result<Share, Error> {
        Ok(self.shares.add(connections))
    }

    async fn begin(&self, deadline: Duration) -> Result<Txn, StoreError> {
        txn::begin(self, deadline).await
    }

    async fn commit(&self, txn: Txn) -> CommitResult {
        txn::commit(self, txn).await
    }

    async fn rollback(&self, txn: Txn) -> Result<RollbackResult, StoreError> {
        txn::rollback(self, txn).await
    }

    fn ticket(&self, txn: &Txn) -> Option<Ticket> {
        txn.commit_was_refused().then(Ticket::default)
    }

    async fn fate(&self, _: &Ticket) -> Result<Fate, StoreError> {
        Ok(Fate::CommitRefused)
    }
}
