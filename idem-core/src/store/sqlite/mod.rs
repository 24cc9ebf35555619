//! The SQLite store.
//!
//! | file | contents |
//! |---|---|
//! | `options` | how a store is opened |
//! | `migrate` | the tables |
//! | `file` | the single writer of a file, and its queue |
//! | `watch` | hooks that track a connection's transactions |
//! | `transactions`, `txn` | begin, guard, commit, rollback |
//! | `claims` | claims |
//! | `inbox_rows`, `inbox_sql` | inbox rows |
//! | `operator` | stats, list, replay, discard |
//! | `prune` | removing old claims |
//! | `register` | handlers, and the ping |
//! | `sql`, `answer` | texts, values, errors |
//! | `plans` | tests of query plans |

mod answer;
mod claims;
mod file;
mod inbox_rows;
mod inbox_sql;
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

use super::{CommitResult, HasConnection, Migration, StoreError};
use crate::Error;
use crate::store::Shares;

pub use options::SqliteOptions;
pub use txn::Txn;

/// The SQLite store: claims and inbox in a database file, beside the tables that handlers write to.
///
/// SQLite has one writer at a time. All handles of a process to one file, whatever their prefix, share one writing
/// connection and use it in the order of their requests. Processes wait for each other for at most 5 seconds, and then
/// return [`StoreError::LockTimeout`]. A transaction is the writer from `begin` until it ends, so handlers run one
/// after the other. Reading does not wait (the file is in WAL mode).
///
/// Unlike in PostgreSQL, a failed statement does not abort its transaction: if a handler swallows an error and returns
/// `Ok`, its successful statements are committed. A statement that rolls back when it fails (`INSERT OR ROLLBACK`, a
/// full disk) ends the transaction: the message then counts as rolled back by its handler, and the handler's later
/// statements fail, so that none of its writes persist. Foreign keys are enforced. The connection is reused, so
/// temporary tables, attached databases and pragmas of one handler are visible to the next one.
///
/// Clones share their connections.
#[derive(Clone)]
pub struct Sqlite {
    file: Arc<file::File>,
    prefix: Arc<sql::Prefix>,
    retention: Duration,
    /// Practically unlimited: callers wait in the queue for the writer.
    shares: Shares,
}

impl Sqlite {
    /// Opens the database file of this URL (`sqlite:orders.db`) or path with the default options, and creates it if it
    /// does not exist. See [`SqliteOptions::connect`].
    ///
    /// # Errors
    /// As [`SqliteOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Returns the options for the database file of this URL (`sqlite:orders.db`) or path.
    pub fn options(url: &str) -> SqliteOptions {
        SqliteOptions::new(url)
    }

    /// Returns the SQL that [`connect`](SqliteOptions::connect) runs, for those who run it by hand and connect with
    /// [`verify_only`](SqliteOptions::verify_only). For a prefix other than `idem_`, replace `"idem_` throughout.
    ///
    /// ```
    /// for migration in idem_core::Sqlite::migrations() {
    ///     println!("-- {}\n{}", migration.name, migration.sql);
    /// }
    /// ```
    pub fn migrations() -> &'static [Migration] {
        migrate::MIGRATIONS
    }

    /// Runs one statement that changes something in autocommit; returns how many rows it changed.
    async fn change(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let mut connection = self.file.writer().await?;
        let done = query.execute(connection.raw()).await.map_err(|error| self.file.fault(error))?;
        connection.give_back();
        Ok(done.rows_affected())
    }

    /// As [`change`](Self::change), for a statement about one message.
    async fn change_of_message(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<u64, StoreError> {
        let mut connection = self.file.writer().await?;
        let done = query.execute(connection.raw()).await.map_err(|error| self.file.fault_of_message(error))?;
        connection.give_back();
        Ok(done.rows_affected())
    }

    /// Begins one of idem's own transactions, in which no handler runs.
    async fn transaction(&self) -> Result<Txn, StoreError> {
        txn::begin(self, Duration::MAX).await
    }

    /// Ends one of idem's own transactions.
    async fn finish(&self, txn: Txn, commit: bool) -> Result<(), StoreError> {
        if !commit {
            return txn::rollback(self, txn).await.map(drop);
        }
        match txn::commit(self, txn).await {
            CommitResult::Done => Ok(()),
            CommitResult::Retry(_) => Err(StoreError::LockTimeout),
            CommitResult::Unknown(fault) => Err(fault),
            CommitResult::Refused(error) => Err(StoreError::Unavailable(error)),
            // No handler has used the connection.
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
