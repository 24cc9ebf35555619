//! A SQLite file that lasts as long as a trial.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use idem_core::{Error, Sqlite};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use uuid::Uuid;

use super::bench::Bench;
use super::cleanup::Cleanup;
use super::connect::{Connect, no_tables};
use super::trial::Trial;

impl Trial<()> {
    /// Creates a trial on a new SQLite file in the system's folder for temporary files. The file is removed when the trial
    /// is dropped, also by a test that panics. So a test can run again with the same ids, and many can run at once.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Handler};
    /// # use idem_test::Trial;
    /// # async fn test<order_paid: Handler<Params = (), Connection = sqlx::SqliteConnection, Message: serde::de::DeserializeOwned>>(
    /// #     event: serde_json::Value) -> Result<(), BoxError> {
    /// let bench = Trial::sqlite().tables("CREATE TABLE payments (order_id INTEGER PRIMARY KEY)");
    /// let trial = bench.handler::<order_paid>().await?;
    /// trial.deliver_json(&event)?.times(2).await?;
    /// assert_eq!(trial.number("SELECT count(*) FROM payments").await?, 1);
    /// # Ok(()) }
    /// ```
    pub fn sqlite() -> Bench<FreshFile> {
        let name = format!("idem_trial_{}", Uuid::new_v4().simple());
        Trial::new(FreshFile {
            folder: std::env::temp_dir().join(name),
            tables: String::new(),
            is_begun: AtomicBool::new(false),
        })
    }
}

impl<St, C, L> Bench<FreshFile, St, C, L> {
    /// Creates the tables of the handler in the file of the trial by this SQL. They exist once [`handler`](Bench::handler)
    /// has returned, which also returns the error if the SQL fails.
    pub fn tables(mut self, sql: impl Into<String>) -> Self {
        self.connect.tables = sql.into();
        self
    }
}

/// Connects to a new SQLite file. Created by [`Trial::sqlite`].
#[derive(Debug)]
pub struct FreshFile {
    folder: PathBuf,
    /// The SQL that creates the handler's tables, or nothing.
    tables: String,
    is_begun: AtomicBool,
}

impl Connect for FreshFile {
    type Output = Pin<Box<dyn Future<Output = Result<Sqlite, Error>> + Send>>;

    fn connect(&self) -> Self::Output {
        let url = format!("sqlite://{}", self.folder.join("trial.db").display());
        let options = Sqlite::options(&url);
        // As on PostgreSQL: the trial connects first, and a process that is being killed creates nothing.
        if self.is_begun.swap(true, SeqCst) {
            return Box::pin(options.verify_only().connect());
        }
        let (folder, tables) = (self.folder.clone(), self.tables.clone());
        Box::pin(async move {
            let failed = |error| Error::database(format!("could not create the folder {}", folder.display()), error);
            std::fs::create_dir_all(&folder).map_err(failed)?;
            let store = options.connect().await?;
            if !tables.is_empty() {
                let mut db = SqliteConnection::connect(&url).await.map_err(no_tables)?;
                sqlx::raw_sql(AssertSqlSafe(tables)).execute(&mut db).await.map_err(no_tables)?;
                db.close().await.map_err(no_tables)?;
            }
            Ok(store)
        })
    }

    fn cleanup(&self) -> Cleanup {
        let folder = self.folder.clone();
        Cleanup::new(move || _ = std::fs::remove_dir_all(folder))
    }
}
