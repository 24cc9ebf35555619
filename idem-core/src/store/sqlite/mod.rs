//! The SQLite store.
//!
//! | file | what |
//! |---|---|
//! | `options` | how a store is opened |
//! | `migrate` | the tables |
//! | `lane` | the one writer of a file, and the queue for it |
//! | `watch` | what a connection tells of its transactions |
//! | `txn` | begin, guard, commit, rollback |
//! | `claim` | claims |
//! | `inbox` | inbox rows |
//! | `operator` | level, list, replay, discard |
//! | `prune` | removing old claims |
//! | `register` | handlers, and signs of life |
//! | `sql`, `answer` | texts, values, errors |

mod answer;
mod claims;
mod inbox_rows;
mod inbox_sql;
mod lane;
mod migrate;
mod operator;
mod options;
mod prune;
mod register;
mod sql;
mod transactions;
mod txn;
mod watch;

#[cfg(test)]
mod plans;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use tokio::sync::Semaphore;

use super::{CommitResult, HasConnection, StoreError};
use crate::Error;

pub use options::SqliteOptions;
pub use txn::Txn;

/// The SQLite store: claims and inbox in a database file, beside the tables that handlers write to.
///
/// SQLite has one writer at a time. All handles of a process to one file, whatever their prefix, share one writing
/// connection and take turns in the order in which they came; processes wait for each other for at most 5 seconds, and
/// what they could not get is [`StoreError::LockTimeout`]. A transaction is the writer from `begin` until it ends, so handlers run
/// one after the other. Reading does not wait (the file is in WAL mode).
///
/// What a handler should know: a failed statement does not abort its transaction, unlike PostgreSQL, so that a handler
/// that swallows an error and returns `Ok` is committed with what did work. A statement that rolls back as it fails
/// (`INSERT OR ROLLBACK`, a full disk) ends the transaction: the message then counts as rolled back by its handler, and
/// what the handler runs after that fails, so that none of it stands. Foreign keys are enforced. The connection is used
/// again, so that temporary tables, attached databases and pragmas of one handler meet the next one.
///
/// Clones share their connections.
#[derive(Clone)]
pub struct Sqlite {
    file: Arc<lane::File>,
    prefix: Arc<sql::Prefix>,
    retention: Duration,
    /// Whoever wants the writer waits for its turn, so that there are as many as can be counted.
    left: Arc<Semaphore>,
}

impl Sqlite {
    /// Opens the database file of this URL (`sqlite:orders.db`) or path with the default options, and makes it if it is
    /// not there. See [`SqliteOptions::connect`].
    ///
    /// # Errors
    /// As [`SqliteOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Options for the database file of this URL (`sqlite:orders.db`) or path.
    pub fn options(url: &str) -> SqliteOptions {
        SqliteOptions::new(url)
    }

    /// Runs one statement that changes something and commits by itself; answers how many rows it changed.
    async fn change(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let mut lane = self.file.lane().await?;
        let done = query.execute(lane.connection()).await.map_err(|error| self.file.fault(error))?;
        lane.give_back();
        Ok(done.rows_affected())
    }

    /// The same, about one message.
    async fn change_of_message(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let mut lane = self.file.lane().await?;
        let done = query.execute(lane.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        lane.give_back();
        Ok(done.rows_affected())
    }

    /// Begins a transaction of idem's own, in which no handler runs.
    async fn transaction(&self) -> Result<Txn, StoreError> {
        txn::begin(self, Duration::MAX).await
    }

    /// Ends a transaction of idem's own.
    async fn finish(&self, txn: Txn, commit: bool) -> Result<(), StoreError> {
        if !commit {
            return txn::rollback(self, txn).await.map(drop);
        }
        match txn::commit(self, txn).await {
            CommitResult::Done => Ok(()),
            CommitResult::Retry(_) => Err(StoreError::LockTimeout),
            CommitResult::Unknown(fault) => Err(fault),
            CommitResult::Refused(error) => Err(StoreError::Unavailable(error)),
            // No handler had it in hand.
            CommitResult::Swallowed
            | CommitResult::RolledBack
            | CommitResult::CommittedEarly
            | CommitResult::CommitRefused => Err(StoreError::LockTimeout),
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("file", &self.file.path())
            .field("prefix", &self.prefix.as_str())
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

impl HasConnection<SqliteConnection> for Sqlite {
    fn connection(txn: &mut Txn) -> &mut SqliteConnection {
        txn.connection()
    }
}
