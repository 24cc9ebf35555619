//! A separate database file.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::PathBuf;
use std::time::Duration;

use idem_conformance::store::{Features, Setup, World};
use idem_core::{Error, Sqlite};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, raw_sql};
use uuid::Uuid;

pub(crate) struct SqliteWorld {
    directory: PathBuf,
}

impl SqliteWorld {
    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}/suite.db", self.directory.display())
    }

    async fn connection(&self) -> SqliteConnection {
        let mut connection = SqliteConnection::connect(&format!("{}?mode=rwc", self.url())).await.unwrap();
        raw_sql("PRAGMA busy_timeout = 20000").execute(&mut connection).await.unwrap();
        connection
    }
}

impl Drop for SqliteWorld {
    fn drop(&mut self) {
        // A leftover directory is not a failure of the test.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl World for SqliteWorld {
    type Store = Sqlite;
    type Connection = SqliteConnection;

    const FEATURES: Features = Features {
        concurrent: false,
        errors_abort: false,
        refuses_commit: true,
        bounded: false,
        terminate_backend: None,
        lost_race: None,
        check_constraints: None,
        prepares: None,
        long: LONG,
        stuck: LONG,
        lasts: "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT count(*) FROM n",
    };

    async fn make() -> Option<Self> {
        let directory = std::env::temp_dir().join(format!("idem-suite-{}", Uuid::new_v4().simple()));
        std::fs::create_dir(&directory).unwrap();
        Some(Self { directory })
    }

    async fn store(&self, setup: Setup) -> Result<Sqlite, Error> {
        let mut options = Sqlite::options(self.url());
        if let Some(retention) = setup.retention {
            options = options.retention(retention);
        }
        options.connect().await
    }

    fn own(&self, table: &str) -> String {
        format!("idem_{table}")
    }

    fn name(&self, table: &str) -> String {
        table.to_owned()
    }

    async fn run(&self, sql: &str) {
        raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection().await).await.unwrap();
    }

    async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut self.connection().await).await.unwrap()
    }

    idem_conformance::handles_by_sqlx!(SqliteConnection);

    /// Times are milliseconds.
    fn earlier(column: &str, by: Duration) -> String {
        format!("{column} - {}", by.as_millis())
    }

    fn refuse(&self, what: &str, table: &str, key: Option<&str>) -> String {
        let of_key = key.map_or_else(String::new, |key| format!(" AND NEW.key = CAST('{key}' AS BLOB)"));
        let table = self.own(table);
        format!(
            "CREATE TRIGGER refuse_{table} BEFORE {what} ON {table} WHEN NEW.handler_id <> 0{of_key}
             BEGIN SELECT RAISE(ABORT, 'refused by a test'); END"
        )
    }

    fn allow(&self, table: &str) -> String {
        format!("DROP TRIGGER refuse_{}", self.own(table))
    }

    async fn waiting(&self) -> Option<i64> {
        None
    }
}

const LONG: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000000) \
                    SELECT count(*) FROM n";
