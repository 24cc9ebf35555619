//! The single writer of a file, its queue, and what a handler can leave on its connection.
//!
//! SQLite has one writer at a time. With only its busy timeout, connections poll for the write lock: of 16 writers, a
//! third failed with SQLITE_BUSY. So the writers of a process wait in a fair queue here, and share one connection. The
//! busy timeout applies to other processes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions as _, Connection as _, Either, Executor as _};
use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard, oneshot};

use super::answer;
use super::handle::Query;
use super::watch::Watch;
use crate::store::{Answer, StoreError};

/// How long processes wait for each other's transactions.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the connection for reading waits, on which a ping writes. Its reads wait for nobody (WAL).
pub(super) const PING_TIMEOUT: Duration = Duration::from_millis(200);

/// Temporary objects hide tables of the same name, and so do those of an attached database where the file has none. The
/// settings decide what statements mean, whether they can be run, and for how long others are locked out; each can be
/// changed inside a transaction. Those that cannot (`foreign_keys`, `synchronous`, `temp_store`) need no look: the
/// connection of a handler that has ended its transaction is closed. Neither do those that end with the transaction
/// (`defer_foreign_keys`).
pub(super) const STATE: &str = "
    SELECT (SELECT count(*) FROM sqlite_temp_schema)
        || ' ' || (SELECT count(*) FROM pragma_database_list WHERE name NOT IN ('main', 'temp'))
        || ' ' || (SELECT query_only FROM pragma_query_only)
        || ' ' || (SELECT max_page_count FROM pragma_max_page_count)
        || ' ' || (SELECT recursive_triggers FROM pragma_recursive_triggers)
        || ' ' || (SELECT ignore_check_constraints FROM pragma_ignore_check_constraints)
        || ' ' || (SELECT writable_schema FROM pragma_writable_schema)
        || ' ' || (SELECT reverse_unordered_selects FROM pragma_reverse_unordered_selects)
        || ' ' || (SELECT timeout FROM pragma_busy_timeout)
        || ' ' || (SELECT locking_mode FROM pragma_locking_mode)
        || ' ' || ('a' LIKE 'A')";

/// The text of the error if a handler left something for the other handlers of its transaction.
pub(super) const CHANGED: &str = "a handler of a batch left a temporary table, view or trigger, an attached database or \
                                  a changed pragma for those behind it";

/// All connections of this process to one file, shared by all handles.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) options: SqliteConnectOptions,
    writer: Arc<FairMutex<Slot>>,
    /// The connection for reading, which no writer blocks (WAL).
    pub(super) reader: FairMutex<Option<SqliteConnection>>,
}

/// The files that this process has open.
static FILES: Mutex<BTreeMap<PathBuf, Weak<File>>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Slot {
    idle: Option<Writer>,
    /// Resolves when the most recently opened connection is closed.
    closed: Option<oneshot::Receiver<()>>,
}

/// The writing connection. sqlx always counts its transaction depth as 1, so that a handler's `begin()` is a savepoint;
/// transactions are begun and ended by SQL text.
struct Writer {
    connection: SqliteConnection,
    watch: Arc<Watch>,
    /// Its state before any handler used it.
    state: String,
}

/// Interrupts the running statement; the connection's thread then closes the connection.
impl Drop for Writer {
    fn drop(&mut self) {
        self.watch.limit(Duration::ZERO);
    }
}

/// The writing connection while a task owns it. Dropping it closes the connection, which rolls back; the next task in
/// the queue waits for that.
pub(super) struct Connection {
    // Declared before the slot, so that the connection is dropped before the queue advances.
    writer: Writer,
    slot: OwnedMutexGuard<Slot>,
}

/// The answer to a command of several statements.
pub(super) struct Answers {
    /// The number of statements that finished.
    pub(super) finished: usize,
    /// The first row.
    pub(super) row: Option<SqliteRow>,
    /// The error of the statement after those.
    pub(super) error: Option<sqlx::Error>,
}

impl File {
    /// Returns the file with this (canonical) path; the first caller's options apply.
    pub(super) fn of(path: PathBuf, options: SqliteConnectOptions) -> Arc<Self> {
        let mut files = FILES.lock();
        if let Some(file) = files.get(&path).and_then(Weak::upgrade) {
            return file;
        }
        files.retain(|_, file| file.strong_count() > 0);
        let file = Self::alone(path.clone(), options);
        files.insert(path, Arc::downgrade(&file));
        file
    }

    /// Returns the file for one handle and its clones: one that may only read it must not decide how others open it.
    pub(super) fn alone(path: PathBuf, options: SqliteConnectOptions) -> Arc<Self> {
        Arc::new(Self {
            path,
            // A file that has vanished is an outage: silently creating a new one would lose all claims.
            options: options.create_if_missing(false),
            writer: Arc::default(),
            reader: FairMutex::default(),
        })
    }

    /// Waits for the writing connection. Dropping the future while it waits leaves the queue.
    pub(super) async fn writer(&self) -> Answer<Connection> {
        let mut slot = self.writer.clone().lock_owned().await;
        if let Some(writer) = slot.idle.take() {
            return Ok(Connection { writer, slot });
        }
        if let Some(closed) = &mut slot.closed {
            // Resolves with an error when the sender is dropped, as intended.
            let _ = closed.await;
            slot.closed = None;
        }
        let (writer, closed) = Writer::open(&self.options).await.map_err(|error| self.fault(error))?;
        slot.closed = Some(closed);
        Ok(Connection { writer, slot })
    }

    /// Classifies an error in one of idem's own statements.
    pub(super) fn fault(&self, error: sqlx::Error) -> StoreError {
        answer::fault(&self.path, error, false)
    }

    /// Classifies an error in one of idem's own statements that is about a message.
    pub(super) fn fault_of_message(&self, error: sqlx::Error) -> StoreError {
        answer::fault(&self.path, error, true)
    }
}

impl Writer {
    async fn open(options: &SqliteConnectOptions) -> sqlx::Result<(Self, oneshot::Receiver<()>)> {
        let mut connection = options.connect().await?;
        let (open, closed) = oneshot::channel();
        let watch = Watch::over(&mut connection, open).await?;
        // A deferred BEGIN takes no lock, so opening never waits. From here on sqlx counts depth 1, because the
        // transaction is forgotten instead of ended.
        std::mem::forget(connection.begin().await?);
        sqlx::query("ROLLBACK").execute(&mut connection).await?;
        let state = sqlx::query_scalar(STATE).fetch_one(&mut connection).await?;
        Ok((Self { connection, watch, state }, closed))
    }
}

impl Connection {
    /// The connection.
    pub(super) fn raw(&mut self) -> &mut SqliteConnection {
        &mut self.writer.connection
    }

    /// The hooks of the connection.
    pub(super) fn watch(&self) -> &Watch {
        &self.writer.watch
    }

    /// Runs a statement that begins, marks or ends a transaction.
    pub(super) async fn run(&mut self, statement: &'static str) -> sqlx::Result<()> {
        sqlx::query(statement).execute(self.raw()).await.map(|_| ())
    }

    /// Runs a command of `count` statements, until one fails.
    pub(super) async fn run_all(&mut self, count: usize, command: Query<'_>) -> Answers {
        let mut answer = Answers { finished: 0, row: None, error: None };
        let mut answers = self.raw().fetch_many(command);
        while let Some(next) = answers.next().await {
            match next {
                Ok(Either::Left(_)) => answer.finished += 1,
                Ok(Either::Right(row)) => answer.row = answer.row.take().or(Some(row)),
                Err(error) => {
                    answer.error = Some(error);
                    return answer;
                }
            }
        }
        if answer.finished < count {
            // The thread has ended, of which the stream tells nothing.
            answer.error = Some(sqlx::Error::WorkerCrashed);
        }
        answer
    }

    /// Returns whether a handler has left nothing, if this is the state of the connection now.
    pub(super) fn is_initial(&self, state: &str) -> bool {
        state == self.writer.state && self.is_watched()
    }

    /// Returns whether all hooks are still in place. A handler can replace them, and sqlx then drops those that were there.
    pub(super) fn is_watched(&self) -> bool {
        // The three hooks and the writer have it.
        Arc::strong_count(&self.writer.watch) == 4
    }

    /// Passes the connection to the next task in the queue. No transaction may be open, and nothing may be left of a
    /// handler.
    pub(super) fn put_back(self) {
        let Self { writer, mut slot } = self;
        slot.idle = Some(writer);
    }
}
