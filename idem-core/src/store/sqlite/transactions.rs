//! The transactions of SQLite.

use std::time::Duration;

use super::file::Connection;
use super::{Sqlite, Txn, begin, txn};
use crate::Error;
use crate::store::{CommitResult, ConnectionShare, Fate, RollbackResult, StoreError, Ticket, Transactions, TxnState};

impl Transactions for Sqlite {
    type Txn = Txn;

    fn describe(&self) -> String {
        format!("SQLite {}, prefix {}", self.file.path().display(), self.prefix.as_str())
    }

    /// If another task writes or waits for the writer, that task finds out whether writing works, and a read suffices here.
    async fn ping(&self) -> Result<(), StoreError> {
        let Some(connection) = self.file.writer_if_free().await else {
            let id = r#"SELECT id FROM "idem_pruner""#;
            return self
                .read(async |store, reader| sqlx::query(store.prefix.sql(id)).fetch_one(reader).await.map(drop))
                .await;
        };
        let mut connection = connection?;
        match probe(self, &mut connection).await.map_err(|error| self.file.fault(error)) {
            Ok(()) => {
                connection.give_back();
                Ok(())
            }
            // Another process writes, so writing is possible.
            Err(StoreError::LockTimeout) => Ok(()),
            Err(fault) => Err(fault),
        }
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
        match txn.guarded.is_some() {
            true => Ok(()),
            false => txn.guard(None).await.map_err(|error| self.file.fault(error)),
        }
    }

    /// Nothing is written outside of the transaction, so the commit detects that it has ended. But without the hooks, nothing
    /// would refuse the COMMIT of the next handler.
    async fn check_between(&self, txn: &mut Txn) -> Result<TxnState, StoreError> {
        txn.shared = true;
        Ok(if txn.connection.is_watched() { TxnState::Unknown } else { TxnState::Ended })
    }

    async fn commit(&self, txn: Txn) -> CommitResult {
        txn::commit(self, txn).await
    }

    async fn rollback(&self, txn: Txn) -> Result<RollbackResult, StoreError> {
        txn::rollback(self, txn).await
    }

    fn ticket(&self, txn: &Txn) -> Option<Ticket> {
        txn.connection.watch().refused().then(Ticket::default)
    }

    async fn fate(&self, _: &Ticket) -> Result<Fate, StoreError> {
        Ok(Fate::CommitRefused)
    }
}

impl Sqlite {
    /// Runs statements in one of idem's own transactions, in which no handler runs, and commits.
    pub(super) async fn in_transaction<T>(
        &self,
        work: impl AsyncFnOnce(&Self, &mut Txn) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let mut txn = begin::begin(self, Duration::MAX).await?;
        let done = work(self, &mut txn).await.map_err(|error| self.file.fault(error))?;
        match txn::commit(self, txn).await {
            CommitResult::Done => Ok(done),
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

/// Writes a page, because a full or read-only disk allows everything else.
const PROBE: &str = r#"UPDATE "idem_pruner" SET id = id"#;

/// Does not wait for other processes, because a ping should be fast.
async fn probe(store: &Sqlite, connection: &mut Connection) -> Result<(), sqlx::Error> {
    connection.run("PRAGMA busy_timeout = 0").await?;
    sqlx::query(store.prefix.sql(PROBE)).execute(connection.raw()).await?;
    connection.run("PRAGMA busy_timeout = 5000").await
}
