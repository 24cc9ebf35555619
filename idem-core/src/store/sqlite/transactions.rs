//! The transactions of SQLite.

use std::time::Duration;

use super::{Sqlite, Txn, begin, register, txn};
use crate::Error;
use crate::store::{CommitResult, ConnectionShare, Fate, RollbackResult, StoreError, Ticket, Transactions, TxnState};

impl Transactions for Sqlite {
    type Txn = Txn;

    fn describe(&self) -> String {
        format!("SQLite {}, prefix {}", self.file.path().display(), self.prefix.as_str())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        register::ping(self).await
    }

    /// Callers wait in the queue for the writer.
    fn share_connections(&self, connections: usize) -> Result<ConnectionShare, Error> {
        Ok(self.shares.add(connections))
    }

    async fn begin(&self, handler_timeout: Duration) -> Result<Txn, StoreError> {
        begin::begin(self, handler_timeout).await
    }

    async fn begin_guarded(&self, handler_timeout: Duration) -> Result<Txn, StoreError> {
        begin::begin_guarded(self, handler_timeout).await
    }

    async fn guard(&self, txn: &mut Txn) -> Result<(), StoreError> {
        match txn.is_guarded() {
            true => Ok(()),
            false => txn.guard(None).await.map_err(|error| self.file.fault(error)),
        }
    }

    /// Nothing is written outside of the transaction, so the commit detects that it has ended. But without the hooks, nothing
    /// would refuse the COMMIT of the next handler.
    async fn check_between(&self, txn: &mut Txn) -> Result<TxnState, StoreError> {
        txn.share();
        Ok(if txn.connection.is_watched() { TxnState::Unknown } else { TxnState::Ended })
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

impl Sqlite {
    /// Begins one of idem's own transactions, in which no handler runs.
    pub(super) async fn transaction(&self) -> Result<Txn, StoreError> {
        begin::begin(self, Duration::MAX).await
    }

    /// Ends one of idem's own transactions.
    pub(super) async fn finish(&self, txn: Txn, commits: bool) -> Result<(), StoreError> {
        if !commits {
            return txn::rollback(self, txn).await.map(drop);
        }
        match txn::commit(self, txn).await {
            CommitResult::Done => Ok(()),
            CommitResult::Retry(_) | CommitResult::Busy(_) => Err(StoreError::LockTimeout),
            CommitResult::Unknown(fault) | CommitResult::NotSent(fault, _) => Err(fault),
            CommitResult::Refused(error) => Err(StoreError::Unavailable(error)),
            // No handler has used the connection.
            CommitResult::Swallowed
            | CommitResult::RolledBack
            | CommitResult::CommittedEarly(_)
            | CommitResult::CommitRefused => Err(StoreError::LockTimeout),
        }
    }
}
