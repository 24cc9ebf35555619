//! A database of a test's own, the command on it, and workers that run beside it.

use std::pin::Pin;
use std::time::Duration;

use idem::Error;
use idem_core::store::Transactions;
use idem_core::{Postgres, Sqlite};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// How a command has ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) exit: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    /// The document on standard output.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Panics unless the command has ended so, and said all of this.
    pub(crate) fn check(&self, exit: i32, parts: &[&str]) {
        assert_eq!(self.exit, exit, "{self:?}");
        for part in parts {
            assert!(self.out.contains(part) || self.err.contains(part), "{part:?} is not in {self:?}");
        }
    }
}

/// A database with idem's tables, and with those that a test creates.
pub(crate) struct World<S, C> {
    pub(crate) store: S,
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) folder: TempDir,
    db: C,
}

pub(crate) type OnPostgres = World<Postgres, PgConnection>;
pub(crate) type OnSqlite = World<Sqlite, SqliteConnection>;

impl OnPostgres {
    /// A new schema, in which the application's tables are as well. `None` if no server is named.
    pub(crate) async fn new() -> Option<Self> {
        Self::in_schema(&format!("idem_cli_{}", uuid::Uuid::new_v4().simple())).await
    }

    pub(crate) async fn in_schema(schema: &str) -> Option<Self> {
        let server = idem_conformance::server("DATABASE_URL")?;
        let between = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{between}options=-c%20search_path%3D{schema}%2Cpublic");
        let store = Postgres::options(&url).schema(schema).connect().await.unwrap();
        let db = PgConnection::connect(&url).await.unwrap();
        Some(Self { store, url, schema: schema.to_owned(), folder: TempDir::new().unwrap(), db })
    }

    pub(crate) async fn end(mut self) {
        self.execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await;
    }
}

impl OnSqlite {
    /// A new file.
    pub(crate) async fn new() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite://{}", folder.path().join("shop.db").display());
        let store = Sqlite::connect(&url).await.unwrap();
        let db = SqliteConnection::connect(&url).await.unwrap();
        Some(Self { store, url, schema: "idem_store".to_owned(), folder, db })
    }

    pub(crate) async fn end(self) {}
}

impl<S: Transactions, C> World<S, C> {
    /// Runs `idem` with these arguments, as the user anna and without a terminal.
    pub(crate) async fn idem(&self, args: &[&str]) -> Answer {
        idem(&self.url, &self.schema, args).await
    }

    /// Runs `idem` until it ends with this exit code: workers report themselves every few seconds.
    pub(crate) async fn idem_until(&self, args: &[&str], exit: i32) -> Answer {
        let mut answer = self.idem(args).await;
        for _ in 0..60 {
            if answer.exit == exit {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            answer = self.idem(args).await;
        }
        answer
    }

    /// A statement with the names of idem's tables: `{inbox_messages}`.
    fn text(&self, sql: &str) -> String {
        let tables =
            ["inbox_messages", "processed_messages", "operations", "outbox_messages", "handlers", "migrations"];
        let facts = self.store.facts();
        tables.iter().fold(sql.to_owned(), |sql, table| sql.replace(&format!("{{{table}}}"), &facts.table(table)))
    }
}

macro_rules! with_sql {
    ($world:ty) => {
        impl $world {
            pub(crate) async fn execute(&mut self, sql: &str) {
                let text = self.text(sql);
                sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut self.db).await.unwrap();
            }

            pub(crate) async fn number(&mut self, sql: &str) -> i64 {
                let text = self.text(sql);
                sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut self.db).await.unwrap()
            }

            /// Waits until this is the answer.
            pub(crate) async fn until(&mut self, sql: &str, number: i64) {
                let reached = async {
                    while self.number(sql).await != number {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                };
                let is_reached = timeout(LIMIT, reached).await.is_ok();
                assert!(is_reached, "{sql} is {} and not {number}", self.number(sql).await);
            }
        }
    };
}
with_sql!(OnPostgres);
with_sql!(OnSqlite);

/// Runs `idem` on this database.
pub(crate) async fn idem(url: &str, schema: &str, args: &[&str]) -> Answer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idem"));
    command.env("DATABASE_URL", url).env("IDEM_SCHEMA", schema).env("USER", "anna");
    command.args(args).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let ended = timeout(LIMIT, command.output()).await.expect("the command does not end").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer { exit: ended.status.code().unwrap(), out: text(&ended.stdout), err: text(&ended.stderr) }
}

/// A worker or a relay that runs beside the commands.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

/// Completes when a worker has to end.
pub(crate) type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Running {
    pub(crate) fn start<F>(run: impl FnOnce(Shutdown) -> F) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let (stop, ended) = oneshot::channel();
        Self { stop, task: tokio::spawn(run(Box::pin(async { drop(ended.await) }))) }
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        timeout(LIMIT, self.task).await.expect("it does not drain").unwrap().unwrap();
    }
}
