//! The one writer of a file, and the queue for it.
//!
//! SQLite has one writer at a time. Left to its busy timeout, connections poll for their turn, and of 16 writers a third
//! gave up with SQLITE_BUSY; so the writers of a process stand in a fair queue of ours, and share one connection. Other
//! processes are waited for with the busy timeout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard, oneshot};

use super::answer;
use super::watch::Watch;
use crate::store::Fault;

/// All connections of this process to one file, whatever handles and prefixes use it.
pub(super) struct File {
    path: PathBuf,
    options: SqliteConnectOptions,
    writer: Arc<FairMutex<Slot>>,
    reader: FairMutex<Option<SqliteConnection>>,
}

/// The files that this process has open.
static FILES: Mutex<BTreeMap<PathBuf, Weak<File>>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Slot {
    idle: Option<Writer>,
    /// Ends when the connection that was opened last is closed.
    closed: Option<oneshot::Receiver<()>>,
}

/// The writing connection. sqlx counts its transaction depth as 1 for life, so that a handler's `begin()` is a savepoint;
/// transactions are begun and ended by text.
struct Writer {
    connection: SqliteConnection,
    watch: Arc<Watch>,
}

/// Whoever drops a writer wants it gone: what it is doing is interrupted, and the thread of the connection closes it.
impl Drop for Writer {
    fn drop(&mut self) {
        self.watch.interrupt();
    }
}

/// The writing connection while it is somebody's. Dropping it closes the connection, which rolls back; the next one in
/// the queue waits for that.
pub(super) struct Lane {
    // Dropped before the slot: the connection first, then the turn of the next.
    writer: Writer,
    slot: OwnedMutexGuard<Slot>,
}

impl File {
    /// The file of this (canonical) path; the options are those of whoever comes first.
    pub(super) fn of(path: PathBuf, options: SqliteConnectOptions) -> Arc<Self> {
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&path).and_then(Weak::upgrade) {
            return file;
        }
        files.retain(|_, file| file.strong_count() > 0);
        let file = Arc::new(Self {
            path: path.clone(),
            // A file that has vanished is an outage: a new one made silently would have forgotten all claims.
            options: options.create_if_missing(false),
            writer: Arc::default(),
            reader: FairMutex::default(),
        });
        files.insert(path, Arc::downgrade(&file));
        file
    }

    /// The file's name, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The writing connection, when it is our turn. A future dropped while it waits leaves the queue.
    pub(super) async fn lane(&self) -> Result<Lane, Fault> {
        let slot = self.writer.clone().lock_owned().await;
        self.open(slot).await
    }

    /// The writing connection, if nobody has it now.
    pub(super) async fn lane_if_free(&self) -> Option<Result<Lane, Fault>> {
        let slot = self.writer.clone().try_lock_owned().ok()?;
        Some(self.open(slot).await)
    }

    async fn open(&self, mut slot: OwnedMutexGuard<Slot>) -> Result<Lane, Fault> {
        if let Some(writer) = slot.idle.take() {
            return Ok(Lane { writer, slot });
        }
        if let Some(closed) = &mut slot.closed {
            // Answers with an error when the sender is dropped, which is what it is for.
            let _ = closed.await;
            slot.closed = None;
        }
        let (writer, closed) = Writer::open(&self.options).await.map_err(|error| self.fault(error))?;
        slot.closed = Some(closed);
        Ok(Lane { writer, slot })
    }

    /// A connection for reading, which no writer blocks (WAL). Give it back with [`Reader::give_back`]; dropped, it is
    /// closed.
    pub(super) async fn reader(&self) -> Result<Reader<'_>, Fault> {
        let mut slot = self.reader.lock().await;
        let connection = match slot.take() {
            Some(connection) => connection,
            None => self.options.connect().await.map_err(|error| self.fault(error))?,
        };
        Ok(Reader { connection, slot })
    }

    /// What an error in a statement of idem's own means.
    pub(super) fn fault(&self, error: sqlx::Error) -> Fault {
        answer::fault(&self.path, error)
    }

    /// What an error means in one that is about a message.
    pub(super) fn fault_of_message(&self, error: sqlx::Error) -> Fault {
        answer::fault_of_message(&self.path, error)
    }
}

impl Writer {
    async fn open(options: &SqliteConnectOptions) -> Result<(Self, oneshot::Receiver<()>), sqlx::Error> {
        let mut connection = options.connect().await?;
        let (open, closed) = oneshot::channel();
        let watch = Watch::over(&mut connection, open).await?;
        // A deferred BEGIN takes no lock, so that opening never waits. sqlx counts depth 1 from here on, because the
        // transaction is forgotten instead of ended.
        std::mem::forget(connection.begin().await?);
        sqlx::query("ROLLBACK").execute(&mut connection).await?;
        Ok((Self { connection, watch }, closed))
    }
}

impl Lane {
    /// The connection.
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.writer.connection
    }

    /// What watches over the connection.
    pub(super) fn watch(&self) -> &Watch {
        &self.writer.watch
    }

    /// Runs a statement that begins, marks or ends a transaction.
    pub(super) async fn run(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(statement).execute(self.connection()).await.map(|_| ())
    }

    /// Hands the connection to the next in the queue. It has no transaction open.
    pub(super) fn give_back(self) {
        let Self { writer, mut slot } = self;
        slot.idle = Some(writer);
    }
}

/// A connection for reading.
pub(super) struct Reader<'a> {
    pub(super) connection: SqliteConnection,
    slot: tokio::sync::MutexGuard<'a, Option<SqliteConnection>>,
}

impl Reader<'_> {
    /// Keeps the connection for the next reader.
    pub(super) fn give_back(self) {
        let Self { connection, mut slot } = self;
        *slot = Some(connection);
    }
}
