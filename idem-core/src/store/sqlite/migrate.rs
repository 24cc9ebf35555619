//! Creation and verification of the tables.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use super::answer;
use super::sql::Prefix;
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
const CURE: &str = "create it with the SQL of `Sqlite::migrations()`, or give `.prefix(..)` a new value; a new \
                    prefix has no claims, so all messages are new there";

/// How long switching the file to WAL mode is retried while other connections use it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Switches the file to WAL mode and runs the missing migrations in one transaction.
pub(super) async fn run(connection: &mut SqliteConnection, path: &Path, prefix: &Prefix) -> Result<(), Error> {
    let failed = |error| answer::failed(path, error);
    let mode = wal(connection).await.map_err(failed)?;
    if mode != "wal" {
        return Err(Error::Config(format!(
            "the SQLite file {} stays in journal mode {mode:?}, in which readers block the writer: keep it on a local \
             disk, where WAL works",
            path.display()
        )));
    }
    let mut txn = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    for Migration { version, sql, .. } in missing(&mut txn, path, prefix).await? {
        sqlx::raw_sql(prefix.sql(sql)).execute(&mut *txn).await.map_err(|error| Error::Database {
            what: format!(
                "migration {version:04} does not fit the SQLite file {}: if tables of another origin begin with {:?}, \
                 choose another .prefix(..)",
                path.display(),
                prefix.as_str()
            ),
            source: error.into(),
        })?;
    }
    columns(&mut txn, path, prefix).await?;
    txn.commit().await.map_err(failed)
}

/// Verifies the tables without changing anything.
pub(super) async fn verify(connection: &mut SqliteConnection, path: &Path, prefix: &Prefix) -> Result<(), Error> {
    let mode = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await;
    let (mode, shown): (String, _) = (mode.map_err(|error| answer::failed(path, error))?, path.display());
    if mode != "wal" {
        return Err(Error::Config(format!(
            "the SQLite file {shown} is in journal mode {mode:?}: run `PRAGMA journal_mode = WAL` on it once, or connect \
             once without verify_only()"
        )));
    }
    let missing = missing(connection, path, prefix).await?;
    if missing.is_empty() {
        return columns(connection, path, prefix).await;
    }
    let versions = missing.iter().map(|migration| format!("{:04}", migration.version)).collect::<Vec<_>>();
    Err(Error::Config(format!(
        "the SQLite file {shown} lacks migration {} under the prefix {:?}: connect once without verify_only(), or run the \
         SQL of `Sqlite::migrations()` by hand (the comment at the top of the SQL shows the command)",
        versions.join(", "),
        prefix.as_str()
    )))
}

/// Retries until WAL mode is enabled: the change needs exclusive access to the file, and SQLite does not wait for it.
async fn wal(connection: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    let begun = Instant::now();
    loop {
        let mode = sqlx::query_scalar("PRAGMA journal_mode = WAL").fetch_one(&mut *connection).await;
        match mode {
            Err(error) if answer::is_busy(&error) && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

/// The file and its tables, as named in error messages.
fn place(path: &Path, prefix: &Prefix) -> String {
    format!("the SQLite file {}, in which the tables begin with {:?},", path.display(), prefix.as_str())
}

/// Returns the migrations that the ledger lacks; all if there is no ledger.
async fn missing(connection: &mut SqliteConnection, path: &Path, prefix: &Prefix) -> Result<Vec<Migration>, Error> {
    let found = columns_found(connection, prefix, &TABLES[..1]).await.map_err(|error| answer::failed(path, error))?;
    if found.is_empty() {
        return Ok(MIGRATIONS.to_vec());
    }
    let place = place(path, prefix);
    tables::check(&place, CURE, &TABLES[..1], &found)?;
    let asked = sqlx::query_as(prefix.sql(r#"SELECT version, name, supports FROM "idem_migrations""#));
    let rows: Vec<(i64, String, i64)> =
        asked.fetch_all(connection).await.map_err(|error| answer::failed(path, error))?;
    let applied = rows.into_iter().map(|(version, name, supports)| Applied { version, name, supports });
    ledger::missing(&place, MIGRATIONS, &applied.collect::<Vec<_>>())
}

/// Checks all tables and columns.
async fn columns(connection: &mut SqliteConnection, path: &Path, prefix: &Prefix) -> Result<(), Error> {
    let pruner = ("pruner", "id locked_by locked_until handler_id key caught_up_to walked size");
    let wanted: Vec<_> = TABLES.into_iter().chain([pruner]).collect();
    let found = columns_found(connection, prefix, &wanted).await.map_err(|error| answer::failed(path, error))?;
    tables::check(&place(path, prefix), CURE, &wanted, &found)
}

/// Reads the columns of those of the tables that exist.
async fn columns_found(
    connection: &mut SqliteConnection,
    prefix: &Prefix,
    wanted: &[Table],
) -> Result<HashMap<String, Vec<String>>, sqlx::Error> {
    let mut found = HashMap::new();
    for (table, _) in wanted {
        let name = format!("{}{table}", prefix.as_str());
        let asked = sqlx::query_scalar("SELECT name FROM pragma_table_info(?1)").bind(name);
        let there: Vec<String> = asked.fetch_all(&mut *connection).await?;
        if !there.is_empty() {
            found.insert((*table).to_owned(), there);
        }
    }
    Ok(found)
}
