//! What the database says.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, ensure};
use idem::store::{Filter, Page};
use idem::{Inbox, Postgres};
use sqlx::{Connection, PgConnection, Row};

use crate::Servers;
use crate::worker::CONSUMER;

/// Where idem's tables are; the effects are in a schema of their own, beside it.
pub(crate) const SCHEMA: &str = "idem_demo";

/// The database, seen by a client beside the workers.
pub(crate) struct Tables {
    connection: PgConnection,
    store: Postgres,
}

/// How far the work has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Claims with a date.
    pub(crate) processed: u64,
    /// Rows that wait in the inbox.
    pub(crate) parked: u64,
    /// Dead letters.
    pub(crate) dead: u64,
}

impl Tables {
    /// Empty ones. What an earlier demo has left is dropped; another one that runs is not disturbed.
    pub(crate) async fn new(servers: &Servers) -> Result<Self> {
        let mut connection = PgConnection::connect(&servers.database).await.context("cannot connect to PostgreSQL")?;
        let alone: bool =
            sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtext('idem demo'))").fetch_one(&mut connection).await?;
        ensure!(alone, "another demo runs on this database");
        let mut tables = Self::drop_schemas(&mut connection).await.map(|()| connection)?;
        // No unique constraint: what is doubled must show.
        sqlx::raw_sql(
            "CREATE SCHEMA idem_demo_effects; CREATE TABLE idem_demo_effects.effects (message bigint NOT NULL)",
        )
        .execute(&mut tables)
        .await?;
        let store = Postgres::options(&servers.database).schema(SCHEMA).connections(2).connect().await?;
        Ok(Self { connection: tables, store })
    }

    /// How far the work has come.
    pub(crate) async fn progress(&mut self) -> Result<Progress> {
        let row = sqlx::query(
            "SELECT (SELECT count(*) FROM idem_demo.processed_messages WHERE processed_at IS NOT NULL),
                    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state = 'parked'),
                    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state = 'dead')",
        )
        .fetch_one(&mut self.connection)
        .await?;
        let count = |column: usize| row.get::<i64, _>(column).unsigned_abs();
        Ok(Progress { processed: count(0), parked: count(1), dead: count(2) })
    }

    /// How many effect rows each message has.
    pub(crate) async fn effects(&mut self) -> Result<HashMap<u64, u64>> {
        let rows = sqlx::query("SELECT message, count(*) FROM idem_demo_effects.effects GROUP BY message")
            .fetch_all(&mut self.connection)
            .await?;
        let unsigned = |row: &sqlx::postgres::PgRow, column: usize| row.get::<i64, _>(column).unsigned_abs();
        Ok(rows.iter().map(|row| (unsigned(row, 0), unsigned(row, 1))).collect())
    }

    /// Whether the database has taken this message over.
    pub(crate) async fn is_claimed(&mut self, id: u64) -> Result<bool> {
        let asked = "SELECT EXISTS (SELECT FROM idem_demo.processed_messages WHERE key = convert_to($1, 'UTF8'))";
        Ok(sqlx::query_scalar(asked).bind(id.to_string()).fetch_one(&mut self.connection).await?)
    }

    /// The messages that are dead letters, as an operator lists them.
    pub(crate) async fn dead(&self) -> Result<Vec<(u64, String)>> {
        let inbox = Inbox::new(&self.store, CONSUMER);
        let mut dead = Vec::new();
        let mut page = Page::default();
        loop {
            let rows = inbox.list(&Filter::default(), page).await?;
            let Some(last) = rows.last() else { return Ok(dead) };
            page.before = Some(last.id);
            for row in rows {
                let id = std::str::from_utf8(row.identity.key.as_bytes())?.parse().unwrap_or(u64::MAX);
                dead.push((id, row.reason.map(|reason| reason.to_string()).unwrap_or_default()));
            }
        }
    }

    /// Drops them.
    pub(crate) async fn drop(mut self) -> Result<()> {
        Self::drop_schemas(&mut self.connection).await
    }

    async fn drop_schemas(connection: &mut PgConnection) -> Result<()> {
        let drop = "SET client_min_messages = warning;
                    DROP SCHEMA IF EXISTS idem_demo CASCADE; DROP SCHEMA IF EXISTS idem_demo_effects CASCADE";
        sqlx::raw_sql(drop).execute(connection).await.map(|_| ()).map_err(Into::into)
    }
}

/// The numbers that stand in one and not in the other.
pub(crate) fn missing(wanted: &HashSet<u64>, there: &HashSet<u64>) -> u64 {
    wanted.difference(there).count() as u64
}
