//! A separate schema in a PostgreSQL database.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Mutex;
use std::time::Duration;

use idem_conformance::server;
use idem_conformance::store::{Features, Setup, World};
use idem_core::store::postgres::PostgresOptions;
use idem_core::{Error, Postgres};
use sqlx::{AssertSqlSafe, Connection, PgConnection, raw_sql};
use uuid::Uuid;

pub(crate) struct PostgresWorld {
    pub(crate) url: String,
    schema: String,
    /// The connection of the last statement: a login costs the server more than most statements of a test.
    idle: Mutex<Option<PgConnection>>,
}

impl PostgresWorld {
    /// Statements that run at once have a connection each.
    async fn connection(&self) -> PgConnection {
        let idle = self.idle.lock().unwrap().take();
        match idle {
            Some(connection) => connection,
            None => PgConnection::connect(&self.url).await.unwrap(),
        }
    }

    /// Keeps a connection whose statement has ended.
    fn keep(&self, connection: PgConnection) {
        *self.idle.lock().unwrap() = Some(connection);
    }

    pub(crate) fn options(&self, url: &str, setup: Setup) -> PostgresOptions {
        let mut options = Postgres::options(url).schema(&*self.schema);
        if let Some(retention) = setup.retention {
            options = options.retention(retention);
        }
        if let Some(connections) = setup.connections {
            options = options.connections(connections);
        }
        options
    }
}

impl World for PostgresWorld {
    type Store = Postgres;
    type Connection = PgConnection;

    const FEATURES: Features = Features {
        concurrent: true,
        errors_abort: true,
        refuses_commit: false,
        bounded: true,
        terminate_backend: Some("SELECT pg_terminate_backend(pg_backend_pid())"),
        lost_race: Some("DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$"),
        check_constraints: Some("SET CONSTRAINTS ALL IMMEDIATE"),
        prepares: Some("SELECT current_setting('max_prepared_transactions')::bigint"),
        long: "SELECT pg_sleep(30)",
        stuck: "SET LOCAL statement_timeout = 0; SELECT pg_sleep(60)",
        lasts: "SELECT pg_sleep(2.5)",
    };

    async fn make() -> Option<Self> {
        let url = server("DATABASE_URL")?;
        let world = Self { url, schema: format!("suite {}", Uuid::new_v4().simple()), idle: Mutex::default() };
        world.run(&format!("CREATE SCHEMA \"{}\"", world.schema)).await;
        Some(world)
    }

    async fn store(&self, setup: Setup) -> Result<Postgres, Error> {
        self.options(&self.url, setup).connect().await
    }

    fn own(&self, table: &str) -> String {
        self.name(table)
    }

    fn name(&self, table: &str) -> String {
        format!("\"{}\".{table}", self.schema)
    }

    async fn run(&self, sql: &str) {
        let mut connection = self.connection().await;
        raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        self.keep(connection);
    }

    async fn number(&self, sql: &str) -> i64 {
        let mut connection = self.connection().await;
        let number = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap();
        self.keep(connection);
        number
    }

    idem_conformance::handles_by_sqlx!(PgConnection);

    fn earlier(column: &str, by: Duration) -> String {
        format!("{column} - interval '{} microseconds'", by.as_micros())
    }

    fn refuse(&self, what: &str, table: &str, key: Option<&str>) -> String {
        let (function, table) = (self.name(&format!("refuse_{table}")), self.own(table));
        // No handler has the number 0: the store uses it to check whether the database is writable.
        let of_key = key.map_or_else(String::new, |key| format!(" AND NEW.key = convert_to('{key}', 'UTF8')"));
        format!(
            "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'refused by a test' USING ERRCODE = '23514'; END $$;
             CREATE TRIGGER refuse BEFORE {what} ON {table}
                 FOR EACH ROW WHEN (NEW.handler_id <> 0{of_key}) EXECUTE FUNCTION {function}()"
        )
    }

    fn allow(&self, table: &str) -> String {
        format!("DROP TRIGGER refuse ON {}", self.own(table))
    }

    async fn waiting(&self) -> Option<i64> {
        // By the tables that it uses: the text of a long statement is cut off before it names the schema.
        let waiting = format!(
            "SELECT count(*) FROM pg_stat_activity AS a WHERE wait_event_type = 'Lock' AND EXISTS (
                 SELECT FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
                 WHERE l.pid = a.pid AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = '{}'))",
            self.schema
        );
        Some(self.number(&waiting).await)
    }
}
