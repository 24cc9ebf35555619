//! The queries of the two consumers' tables and of the outbox.

use anyhow::Result;
use idem::Postgres;
use sqlx::Row;

use super::handlers::Paid;
use crate::tables::{Tables, unsigned};

/// The schema of the consumer that takes.
pub(super) const TAKEN: &str = "idem_demo_taken";

/// The progress of the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Messages that were staged.
    pub(super) staged: u64,
    /// Messages that were taken.
    pub(super) taken: u64,
    /// Messages that wait in the outbox.
    pub(super) waiting: u64,
    /// Rows that wait in an inbox.
    pub(super) scheduled: u64,
    /// Dead letters of the outbox and of both consumers.
    pub(super) dead: u64,
}

/// Creates the tables of both consumers, beside those of [`Tables::new`].
pub(super) async fn create(tables: &mut Tables, url: &str) -> Result<()> {
    // No unique constraints: what is doubled must be visible.
    for statement in [
        "DROP SCHEMA IF EXISTS idem_demo_taken CASCADE",
        "CREATE TABLE demo.staged (message bigint NOT NULL, account int NOT NULL, place bigint NOT NULL)",
        "CREATE TABLE demo.taken (message bigint NOT NULL, account int NOT NULL, place bigint NOT NULL)",
    ] {
        tables.rows(statement, &[]).await?;
    }
    drop(Postgres::options(url).schema(TAKEN).connect().await?);
    Ok(())
}

/// Returns the progress of the work.
pub(super) async fn progress(tables: &mut Tables) -> Result<Progress> {
    let sql = "SELECT (SELECT count(*) FROM demo.staged), (SELECT count(*) FROM demo.taken),
        (SELECT count(*) FROM idem_demo.outbox_messages),
        (SELECT count(*) FROM idem_demo.inbox_messages WHERE state <> 'dead')
            + (SELECT count(*) FROM idem_demo_taken.inbox_messages WHERE state <> 'dead'),
        (SELECT count(*) FROM idem_demo.inbox_messages WHERE state = 'dead')
            + (SELECT count(*) FROM idem_demo_taken.inbox_messages WHERE state = 'dead')
            + (SELECT count(*) FROM idem_demo.outbox_dead)";
    let row = tables.row(sql, &[]).await?;
    let at = |column| unsigned(&row, column);
    Ok(Progress { staged: at(0), taken: at(1), waiting: at(2), scheduled: at(3), dead: at(4) })
}

/// Returns the messages that were staged.
pub(super) async fn staged(tables: &mut Tables) -> Result<Vec<Paid>> {
    paid(tables, "SELECT message, account, place FROM demo.staged").await
}

/// Returns the messages that were taken.
pub(super) async fn taken(tables: &mut Tables) -> Result<Vec<Paid>> {
    paid(tables, "SELECT message, account, place FROM demo.taken").await
}

async fn paid(tables: &mut Tables, sql: &'static str) -> Result<Vec<Paid>> {
    let rows = tables.rows(sql, &[]).await?;
    Ok(rows.iter().map(|row| Paid { id: unsigned(row, 0), account: row.get(1), place: row.get(2) }).collect())
}
