//! Creation and verification of the tables.

use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use super::answer;
use crate::Error;
use crate::store::Migration;
use crate::store::sql::ledger::{self, Applied};
use crate::store::sql::tables::{self, TABLES, Table};

/// All migrations, in order. Old and new versions of idem run side by side during a rollout, so a migration either keeps the
/// previous version working, or records in the ledger (`supports`) that it does not.
pub(super) const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "0001_tables.sql",
    sql: include_str!("../../../migrations/sqlite/0001_tables.sql"),
}];

/// How to create what is missing.
const REMEDY: &str = "create it with the SQL of `Sqlite::migrations()`, or give the store a new file, which has no claims, so that \
                    all messages are new there";

/// The table of this database only.
const PRUNER: Table = ("pruner", "id locked_until handler_id key walked size");

/// How long switching the file to WAL mode is retried while other connections use it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Switches the file to WAL mode and runs the missing migrations in one transaction, or, with `verify_only`, checks that both were
/// done.
pub(super) async fn run(connection: &mut SqliteConnection, path: &Path, verify_only: bool) -> Result<(), Error> {
    let shown = path.display();
    let failed = |error| answer::failed(path, error);
    let mode = wal(connection, verify_only).await.map_err(failed)?;
    if mode != "wal" {
        let remedy = match verify_only {
            true => "run `PRAGMA journal_mode = WAL` on it once, or connect once without verify_only()",
            false => "keep it on a local disk, where WAL works",
        };
        return Err(Error::Config(format!(
            "the SQLite file {shown} is in journal mode {mode:?}, in which readers block the writer: {remedy}"
        )));
    }
    let begin = if verify_only { "BEGIN" } else { "BEGIN IMMEDIATE" };
    let mut txn = connection.begin_with(begin).await.map_err(failed)?;
    let place = format!("the SQLite file {shown}");
    let lacks = |table: &str, error: sqlx::Error| match answer::code(&error) {
        Some(answer::ERROR) => {
            tables::lacks(&place, REMEDY, &format!("the table `{table}` or a column of it ({error})"))
        }
        _ => failed(error),
    };
    let there = sqlx::query_scalar::<_, bool>("SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'idem_migrations'");
    let mut applied = Vec::new();
    if there.fetch_one(&mut *txn).await.map_err(failed)? {
        let asked = sqlx::query_as("SELECT version, name, supports FROM idem_migrations");
        let rows: Vec<(i64, String, i64)> =
            asked.fetch_all(&mut *txn).await.map_err(|error| lacks("migrations", error))?;
        applied.extend(rows.into_iter().map(|(version, name, supports)| Applied { version, name, supports }));
    }
    let missing = ledger::missing(&place, MIGRATIONS, &applied)?;
    if verify_only && !missing.is_empty() {
        let versions = missing.iter().map(|migration| format!("{:04}", migration.version)).collect::<Vec<_>>();
        return Err(Error::Config(format!(
            "the SQLite file {shown} lacks migration {}: connect once without verify_only(), or run \
             the SQL of `Sqlite::migrations()` by hand (the comment at the top of the SQL shows the command)",
            versions.join(", ")
        )));
    }
    for Migration { version, sql, .. } in missing {
        sqlx::raw_sql(sql).execute(&mut *txn).await.map_err(|error| Error::Database {
            what: format!(
                "migration {version:04} does not fit the SQLite file {shown}: if it has tables of another origin whose names begin \
                 with `idem_`, rename them, or give idem a file of its own"
            ),
            source: error.into(),
        })?;
    }
    for (table, columns) in TABLES.into_iter().chain([PRUNER]) {
        let read = format!("SELECT {} FROM idem_{table} LIMIT 0", columns.replace(' ', ", "));
        sqlx::query(AssertSqlSafe(read)).execute(&mut *txn).await.map_err(|error| lacks(table, error))?;
    }
    txn.commit().await.map_err(failed)
}

/// Retries until WAL mode is enabled: the change needs exclusive access to the file, and SQLite does not wait for it. With
/// `verify_only`, only returns the mode.
async fn wal(connection: &mut SqliteConnection, verify_only: bool) -> sqlx::Result<String> {
    let begun = Instant::now();
    loop {
        let mode = sqlx::query_scalar(if verify_only { "PRAGMA journal_mode" } else { "PRAGMA journal_mode = WAL" });
        match mode.fetch_one(&mut *connection).await {
            Err(error) if answer::is_busy(&error) && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}
