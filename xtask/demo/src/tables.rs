//! The demo's queries of the database.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use idem::Postgres;
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Row};

use crate::plan::{ACCOUNTS, id_of};

/// The schema of idem's tables; the effects are in a separate schema, `demo`.
pub(crate) const SCHEMA: &str = "idem_demo";

/// How long the database may take to recover after a crash.
const PATIENCE: Duration = Duration::from_secs(60);

/// The database, as seen by a client other than the workers, through one connection, which is replaced when it is lost.
pub(crate) struct Tables(PgPool);

/// The progress of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Messages that are processed.
    pub(crate) done: u64,
    /// Dead letters.
    pub(crate) dead: u64,
    /// Messages that wait in the database.
    pub(crate) waiting: u64,
}

/// A summary of an inbox row.
#[derive(Debug, Clone)]
pub(crate) struct InboxRow {
    /// The reason of a dead letter; `None` if the row waits.
    pub(crate) reason: Option<String>,
    /// All other columns, as text for display.
    pub(crate) text: String,
}

impl Tables {
    /// Creates empty tables on the demo's private server.
    pub(crate) async fn new(url: &str) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE).connect(url).await;
        let pool = pool.context("cannot connect to PostgreSQL")?;
        // No unique constraints: duplicates must be visible.
        let make = format!(
            "SET client_min_messages = warning;
             DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP SCHEMA IF EXISTS demo CASCADE;
             DROP ROLE IF EXISTS demo_nobody; CREATE ROLE demo_nobody;
             CREATE SCHEMA demo;
             CREATE TABLE demo.effects (message bigint NOT NULL, account int NOT NULL, amount bigint NOT NULL);
             CREATE TABLE demo.accounts (account int PRIMARY KEY, balance bigint NOT NULL);
             INSERT INTO demo.accounts SELECT n, 0 FROM generate_series(0, {ACCOUNTS} - 1) AS n;
             CREATE TABLE demo.wholes (id int PRIMARY KEY);
             CREATE TABLE demo.parts (whole int NOT NULL REFERENCES demo.wholes DEFERRABLE INITIALLY DEFERRED)"
        );
        sqlx::raw_sql(AssertSqlSafe(make)).execute(&pool).await?;
        drop(Postgres::options(url).schema(SCHEMA).connect().await?);
        Ok(Self(pool))
    }

    /// Returns the rows of this query. Asks again if the connection ends meanwhile: a crash of the database ends it a
    /// moment later.
    pub(crate) async fn rows(&self, sql: &'static str, arguments: &[&str]) -> Result<Vec<PgRow>> {
        let start = Instant::now();
        loop {
            let query = arguments.iter().fold(sqlx::query(sql), |query, argument| query.bind(*argument));
            match query.fetch_all(&self.0).await {
                Err(error) if is_lost(&error) && start.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                answer => return Ok(answer?),
            }
        }
    }

    pub(crate) async fn row(&self, sql: &'static str, arguments: &[&str]) -> Result<PgRow> {
        self.rows(sql, arguments).await?.pop().context("a query without an answer")
    }

    /// Returns the progress of the work by this query.
    pub(crate) async fn progress(&self, sql: &'static str) -> Result<Progress> {
        let row = self.row(sql, &[]).await?;
        Ok(Progress { done: unsigned(&row, 0), dead: unsigned(&row, 1), waiting: unsigned(&row, 2) })
    }

    /// Makes messages that wait because of a lost connection due now: ten such waits take most of a minute.
    pub(crate) async fn hurry(&self) -> Result<()> {
        let due = "UPDATE idem_demo.inbox_messages SET run_at = now()
                   WHERE lost_connections > 0 AND locked_by IS NULL AND state <> 'dead' AND run_at > now()";
        self.rows(due, &[]).await.map(drop)
    }

    /// Returns how many effects each message has.
    pub(crate) async fn effects(&self) -> Result<HashMap<u64, u64>> {
        let rows = self.rows("SELECT message, count(*) FROM demo.effects GROUP BY message", &[]).await?;
        Ok(rows.iter().map(|row| (unsigned(row, 0), unsigned(row, 1))).collect())
    }

    /// Returns the number of accounts whose balance differs from the sum of their effects, and the sum of all balances.
    pub(crate) async fn balance(&self) -> Result<(u64, i64)> {
        let sql = "SELECT count(*) FILTER (WHERE a.balance <> coalesce(e.amount, 0)), sum(a.balance)::bigint
             FROM demo.accounts AS a
             LEFT JOIN (SELECT account, sum(amount) AS amount FROM demo.effects GROUP BY account) AS e USING (account)";
        let row = self.row(sql, &[]).await?;
        Ok((unsigned(&row, 0), row.get(1)))
    }

    /// Returns whether the database has a claim with this key.
    pub(crate) async fn is_claimed(&self, key: &str) -> Result<bool> {
        let asked = "SELECT EXISTS (SELECT FROM idem_demo.processed_messages WHERE key = convert_to($1, 'UTF8'))";
        Ok(self.row(asked, &[key]).await?.get(0))
    }

    /// Returns whether each claim has a date, by key.
    pub(crate) async fn claims(&self) -> Result<HashMap<String, bool>> {
        let asked = "SELECT convert_from(key, 'UTF8'), processed_at IS NOT NULL FROM idem_demo.processed_messages";
        let rows = self.rows(asked, &[]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Returns the rows of the inbox, by message number.
    pub(crate) async fn inbox(&self) -> Result<HashMap<u64, Vec<InboxRow>>> {
        let sql = "SELECT payload, reason,
                    format('row %s: %s, %s, %s starts, %s attempts, %s lost connections, seen %s times, due at %s%s: %s', id, state,
                           coalesce(reason, 'no reason'), crash_count, attempts, lost_connections, deliveries, run_at::time(0),
                           CASE WHEN locked_by IS NOT NULL THEN ', taken' ELSE '' END, error)
             FROM idem_demo.inbox_messages ORDER BY id";
        let rows = self.rows(sql, &[]).await?;
        let mut inbox = HashMap::<_, Vec<InboxRow>>::new();
        for row in rows {
            let id = id_of(row.get(0)).context("a row of the inbox that is no message of the demo")?;
            inbox.entry(id).or_default().push(InboxRow { reason: row.get(1), text: row.get(2) });
        }
        Ok(inbox)
    }
}

/// Returns whether the connection ended: by itself, or because the server ends or recovers (class 57P).
fn is_lost(error: &sqlx::Error) -> bool {
    let is_ending = |error: &dyn DatabaseError| error.code().is_some_and(|code| code.starts_with("57P"));
    matches!(error, sqlx::Error::Io(_)) || error.as_database_error().is_some_and(is_ending)
}

pub(crate) fn unsigned(row: &PgRow, column: usize) -> u64 {
    row.get::<i64, _>(column).unsigned_abs()
}
