//! The store itself, which all files of this folder share.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions as _, FromRow};

use super::file::{File, PING_TIMEOUT};
use super::sql::rows;
use super::watch::STEPS;
use crate::store::sql::Clock;
use crate::store::{Answer, Row, StoreFacts};

/// The SQLite store: claims and inbox in a database file, beside the tables that handlers write to.
///
/// SQLite has one writer at a time. All handles of a process to one file share one writing
/// connection and use it in the order of their requests. Processes wait for each other for at most 5 seconds, and then
/// return [`StoreError::LockTimeout`](crate::store::StoreError::LockTimeout). A transaction is the writer from `begin` until it
/// ends, so handlers run one after the other. Reading does not wait (the file is in WAL mode).
///
/// Unlike in PostgreSQL, a failed statement does not abort its transaction: if a handler swallows an error and returns
/// `Ok`, its successful statements are committed. A statement that rolls back when it fails (`INSERT OR ROLLBACK`, a
/// full disk) ends the transaction: the message then counts as rolled back by its handler, and the handler's later
/// statements fail, so that none of its writes persist. Foreign keys are enforced.
///
/// Handlers share the connection, so it is compared after each of them. A connection on which a handler leaves a
/// temporary table, view or trigger, an attached database or a changed pragma is closed, and the next message gets
/// another one. A batch in which one does so is split until each message runs alone. A handler that drops, detaches and
/// restores these itself avoids both.
///
/// Clones share their connections.
///
/// ```
/// # use idem_core::{Sqlite, operator::{Filter, Operator, Page}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem_core::Error> {
/// # let folder = std::env::temp_dir().join(format!("idem-sqlite-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).map_err(|error| idem_core::Error::database("no folder", error))?;
/// # let url = format!("sqlite://{}/billing.db", folder.display());
/// // `url` is "sqlite:billing.db".
/// let store = Sqlite::connect(&url).await?;
/// let dead = Operator::new(&store).consumer("billing").list(&Filter::new(), Page::default()).await?.rows;
/// assert!(dead.is_empty());
/// # drop(store);
/// # let _ = std::fs::remove_dir_all(folder);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sqlite {
    pub(super) file: Arc<File>,
    pub(super) retention: Duration,
    pub(super) facts: Arc<StoreFacts>,
    pub(super) clock: Arc<Clock>,
}

pub(super) type Query<'q> = sqlx::query::Query<'q, sqlx::Sqlite, SqliteArguments>;

impl Sqlite {
    /// Reads rows by one statement, on the connection for reading, which no writer blocks.
    pub(super) async fn read_all<T>(
        &self,
        query: Query<'_>,
        decode: impl Fn(&SqliteRow) -> sqlx::Result<T>,
    ) -> Answer<Vec<T>> {
        self.read(async move |reader| query.fetch_all(reader).await?.iter().map(decode).collect()).await
    }

    /// Reads the one row of a statement, as a tuple.
    pub(super) async fn read_one<T: for<'r> FromRow<'r, SqliteRow>>(&self, query: Query<'_>) -> Answer<T> {
        self.read(async move |reader| T::from_row(&query.fetch_one(reader).await?)).await
    }

    /// Runs statements on the connection for reading, which no writer blocks.
    pub(super) async fn read<T>(&self, work: impl AsyncFnOnce(&mut SqliteConnection) -> sqlx::Result<T>) -> Answer<T> {
        let mut slot = self.file.reader.lock().await;
        // It is closed unless the work has ended well.
        let mut reader = match slot.take() {
            Some(reader) => reader,
            None => {
                let options = self.file.options.clone().busy_timeout(PING_TIMEOUT);
                options.connect().await.map_err(|error| self.file.fault(error))?
            }
        };
        let answer = work(&mut reader).await.map_err(|error| self.file.fault(error))?;
        *slot = Some(reader);
        Ok(answer)
    }

    /// Answers a question of an operator, which changes nothing, on a connection of its own: a worker waits for the one for reading when
    /// it looks for due rows. The connection's thread ends the statement after this time, also if the future is dropped.
    pub(super) async fn ask_patiently<T>(
        &self,
        patience: Duration,
        question: Query<'_>,
        decode: impl FnOnce(&[SqliteRow]) -> sqlx::Result<T>,
    ) -> Answer<T> {
        let options = self.file.options.clone().pragma("query_only", "ON");
        let end = Instant::now() + patience;
        let answer = async {
            let mut connection = options.connect().await?;
            connection.lock_handle().await?.set_progress_handler(STEPS, move || Instant::now() < end);
            decode(&question.fetch_all(&mut connection).await?)
        };
        answer.await.map_err(|error| self.file.fault(error))
    }

    /// Runs one statement on the writing connection, in autocommit; returns the inbox rows of its answer.
    pub(super) async fn change_rows(&self, query: Query<'_>) -> Answer<Vec<Row>> {
        self.change_since(query, |answer, _| rows(answer)).await
    }

    /// The same for any answer, with the time at which it had the connection. A wait for another process, of at most 5 seconds,
    /// comes later; the clock by which it dates anything is read after that wait.
    pub(super) async fn change_since<T>(
        &self,
        query: Query<'_>,
        decode: impl FnOnce(&[SqliteRow], Instant) -> sqlx::Result<T>,
    ) -> Answer<T> {
        let mut connection = self.file.writer().await?;
        let since = Instant::now();
        let answer = query.fetch_all(connection.raw()).await.and_then(|answer| decode(&answer, since));
        let answer = answer.map_err(|error| self.file.fault(error))?;
        connection.put_back();
        Ok(answer)
    }

    /// Runs one statement that changes something in autocommit; returns how many rows it changed.
    pub(super) async fn change(&self, query: Query<'_>) -> Answer<u64> {
        let mut connection = self.file.writer().await?;
        let done = query.execute(connection.raw()).await.map_err(|error| self.file.fault_of_message(error))?;
        connection.put_back();
        Ok(done.rows_affected())
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("facts", &self.facts).finish_non_exhaustive()
    }
}
