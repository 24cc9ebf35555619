//! The options of a store.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};

use super::file::{BUSY_TIMEOUT, File};
use super::sql::{NOW, duration, since_epoch};
use super::{Sqlite, answer, migrate};
use crate::Error;
use crate::store::StoreFacts;
use crate::store::sql::Clock;

/// The options of a [`Sqlite`] store.
///
/// ```
/// # use std::time::Duration;
/// # use idem_core::Sqlite;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem_core::Error> {
/// # let folder = std::env::temp_dir().join(format!("idem-options-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).map_err(|error| idem_core::Error::database("no folder", error))?;
/// # let url = format!("sqlite://{}/billing.db", folder.display());
/// let store = Sqlite::options(&url).retention(Duration::from_secs(24 * 3600)).connect().await?;
/// let same = Sqlite::options(&url).verify_only().connect().await?;
/// # drop((store, same));
/// # let _ = std::fs::remove_dir_all(folder);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct SqliteOptions {
    url: String,
    retention: Duration,
    verify_only: bool,
    /// Whether the file may be one that this process only reads.
    may_read_only: bool,
}

impl SqliteOptions {
    pub(super) fn new(url: &str) -> Self {
        let retention = Duration::from_secs(7 * 24 * 3600);
        Self { url: url.to_owned(), retention, verify_only: false, may_read_only: false }
    }

    /// How long claims are kept after their message was processed; 7 days by default. A message that is redelivered
    /// after that becomes a dead letter with reason `too old`, or is processed again if the broker has no clock. Zero
    /// is an error.
    ///
    /// A worker that starts writes the value to the table `idem_handlers` for each of its handlers, in milliseconds.
    /// The greater value wins, so that two versions of a service, and services that share a file, never prune claims
    /// that another one needs. To lower it, start all workers with the lower value, and then run
    /// `UPDATE idem_handlers SET retention = 3 * 86400000 WHERE consumer = 'billing'`. NULL keeps claims forever.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Verifies that the file and the tables exist instead of creating them.
    pub fn verify_only(mut self) -> Self {
        self.verify_only = true;
        self
    }

    /// For a store by which an operator reads and changes messages, and on which no worker and no relay runs: it
    /// [only verifies](Self::verify_only) that the file and the tables exist, and the URL may have `mode=ro`. A change of such a file is
    /// [`StoreError::Denied`](crate::store::StoreError::Denied).
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), idem_core::Error> {
    /// let store = idem_core::Sqlite::options("sqlite:billing.db?mode=ro").for_operator().connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn for_operator(mut self) -> Self {
        self.may_read_only = true;
        self.verify_only()
    }

    /// Opens the file, creates it if it does not exist, switches it to WAL mode, and runs the missing migrations. Any
    /// number of processes may do this concurrently.
    ///
    /// Each commit is synced to disk (`synchronous = FULL`): nothing can be lost after an ack.
    ///
    /// # Errors
    /// [`Error::Config`] if a setting cannot work: an in-memory database, `mode=ro`, a retention of zero,
    /// tables that lack a column, or tables that a newer version of idem has changed so that this one must not
    /// use them; with [`verify_only`](Self::verify_only), a file without the tables of this version.
    /// [`Error::Database`] if the file cannot be opened or written. The text names the file and the fix.
    pub async fn connect(self) -> Result<Sqlite, Error> {
        if self.retention.is_zero() {
            return refuse(
                "a retention of zero would forget each message at once, so that its duplicate runs again: give \
                 .retention(..) at least the time in which the broker may deliver again"
                    .to_owned(),
            );
        }
        let options = self.target()?;
        let path = options.get_filename().to_owned();
        let mut connection = options.connect().await.map_err(|error| answer::failed(&path, error))?;
        migrate::run(&mut connection, &path, self.verify_only).await?;
        // The file exists now, so its path can be canonicalized for all handles.
        let canonical = path.canonicalize().map_err(|error| Error::Database {
            what: format!("the SQLite file {} is gone: do not move it while it is in use", path.display()),
            source: error.into(),
        })?;
        // SQLite reads the clock of this machine.
        let clock = Clock::default();
        clock.ahead(Instant::now(), duration(since_epoch(SystemTime::now())));
        let name = format!("SQLite {}", canonical.display());
        let around_table = ["\"idem_", "\""].map(ToOwned::to_owned);
        let file = if self.may_read_only { File::alone } else { File::of };
        Ok(Sqlite {
            // Practically unlimited: callers wait in the queue for the writer.
            facts: Arc::new(StoreFacts::new(name, usize::MAX, around_table, NOW)),
            file: file(canonical.clone(), options.filename(canonical)),
            retention: self.retention,
            clock: Arc::new(clock),
        })
    }

    /// Returns how to connect to `sqlite:orders.db`, `sqlite:///var/lib/orders.db` or a plain path.
    fn target(&self) -> Result<SqliteConnectOptions, Error> {
        let url = &self.url;
        let is_url = url.starts_with("sqlite:");
        if let Some((scheme, _)) = url.split_once("://").filter(|_| !is_url) {
            // The rest may contain a password.
            return refuse(format!(
                "a URL that begins with {scheme}:// does not name an SQLite file: write sqlite:orders.db"
            ));
        }
        let rest = url.trim_start_matches("sqlite://").trim_start_matches("sqlite:");
        let (database, parameters) = rest.split_once('?').filter(|_| is_url).unwrap_or((rest, ""));
        let says = |parameter: &str| parameters.contains(parameter);
        let reasons = [
            (database.is_empty(), "it names no file: write sqlite:orders.db"),
            (database.starts_with("file:"), "it is a URI of SQLite's own: write sqlite:orders.db, or the plain path"),
            (
                database == ":memory:" || says("mode=memory"),
                "a database in memory is gone with its connection, claims and all: name a file, in a temporary directory if it \
                 is for a test",
            ),
            (
                says("mode=ro") && !self.may_read_only || says("immutable"),
                "`mode=ro` or `immutable` prevents that claims are written: remove it",
            ),
            (says("cache=shared"), "the busy timeout does not apply to `cache=shared`: remove it"),
        ];
        if let Some((_, why)) = reasons.into_iter().find(|(is_so, _)| *is_so) {
            return refuse(format!("{url:?} cannot be used: {why}"));
        }
        let options = match is_url {
            true => url.parse::<SqliteConnectOptions>().map_err(|error: sqlx::Error| Error::Database {
                what: format!("{url} is not the URL of an SQLite file: write sqlite:orders.db, or the plain path"),
                source: error.into(),
            })?,
            false => SqliteConnectOptions::new().filename(url),
        };
        Ok(options
            .create_if_missing(!self.verify_only)
            .busy_timeout(BUSY_TIMEOUT)
            // A reported commit has to survive a power failure, because the broker is acked after it.
            .synchronous(SqliteSynchronous::Full))
    }
}

fn refuse<T>(why: String) -> Result<T, Error> {
    Err(Error::Config(why))
}
