//! Creation and verification of the tables.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection as _, Row as _};

use super::answer;
use super::sql::Prefix;
use crate::Error;
use crate::store::Migration;
use crate::store::ledger::{self, Applied};
use crate::store::tables::{self, TABLES, Table};

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
    let failed = |error: sqlx::Error| Error::Database { what: answer::trouble(path, &error), source: error.into() };
    let mode = wal(connection).await.map_err(failed)?;
    if mode != "wal" {
        return Err(Error::Config(format!(
            "the SQLite file {} stays in journal mode {mode:?}, in which readers block the writer: keep it on a local \
             disk, where WAL works",
            path.display()
        )));
    }
    let mut txn = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    let place = place(path, prefix);
    for Migration { version, sql, .. } in missing(&mut txn, &place, prefix).await.map_err(failed)?? {
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
    columns(&mut txn, &place, prefix).await.map_err(failed)??;
    txn.commit().await.map_err(failed)
}

/// Verifies the tables without changing anything.
pub(super) async fn verify(connection: &mut SqliteConnection, path: &Path, prefix: &Prefix) -> Result<(), Error> {
    let failed = |error: sqlx::Error| Error::Database { what: answer::trouble(path, &error), source: error.into() };
    let place = place(path, prefix);
    let path = path.display();
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(failed)?;
    if mode != "wal" {
        return Err(Error::Config(format!(
            "the SQLite file {path} is in journal mode {mode:?}: run `PRAGMA journal_mode = WAL` on it once, or connect \
             once without verify_only()"
        )));
    }
    let missing = missing(connection, &place, prefix).await.map_err(failed)??;
    if missing.is_empty() {
        return columns(connection, &place, prefix).await.map_err(failed)?;
    }
    let versions = missing.iter().map(|migration| format!("{:04}", migration.version)).collect::<Vec<_>>();
    Err(Error::Config(format!(
        "the SQLite file {path} lacks migration {} under the prefix {:?}: connect once without verify_only(), or run the \
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

const LEDGER: &str = r#"SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)"#;

/// The file and its tables, as named in error messages.
fn place(path: &Path, prefix: &Prefix) -> String {
    format!("the SQLite file {}, in which the tables begin with {:?},", path.display(), prefix.as_str())
}

/// Returns the migrations that the ledger lacks; all if there is no ledger. Unknown migrations in the ledger come from
/// a newer version, which has to support this one.
async fn missing(
    connection: &mut SqliteConnection,
    place: &str,
    prefix: &Prefix,
) -> Result<Result<Vec<Migration>, Error>, sqlx::Error> {
    let applied = match applied(connection, place, prefix).await? {
        Ok(applied) => applied,
        Err(refused) => return Ok(Err(refused)),
    };
    if let Err(refused) = ledger::check(place, MIGRATIONS, &applied) {
        return Ok(Err(refused));
    }
    let is_there = |migration: &&Migration| applied.iter().any(|applied| applied.version == migration.version);
    Ok(Ok(MIGRATIONS.iter().filter(|migration| !is_there(migration)).copied().collect()))
}

async fn applied(
    connection: &mut SqliteConnection,
    place: &str,
    prefix: &Prefix,
) -> Result<Result<Vec<Applied>, Error>, sqlx::Error> {
    let ledger = format!("{}migrations", prefix.as_str());
    let exists: bool = sqlx::query_scalar(LEDGER).bind(&ledger).fetch_one(&mut *connection).await?;
    if !exists {
        return Ok(Ok(Vec::new()));
    }
    let found = HashMap::from([("migrations".to_owned(), columns_of(connection, &ledger).await?)]);
    if let Err(refused) = tables::check(place, CURE, &TABLES[..1], &found) {
        return Ok(Err(refused));
    }
    let asked = sqlx::query(prefix.sql(r#"SELECT version, name, supports FROM "idem_migrations""#));
    let rows = asked.fetch_all(connection).await?;
    let row = |row: &SqliteRow| -> Result<Applied, sqlx::Error> {
        Ok(Applied { version: row.try_get(0)?, name: row.try_get(1)?, supports: row.try_get(2)? })
    };
    rows.iter().map(row).collect::<Result<_, _>>().map(Ok)
}

/// Checks all tables and columns.
async fn columns(
    connection: &mut SqliteConnection,
    place: &str,
    prefix: &Prefix,
) -> Result<Result<(), Error>, sqlx::Error> {
    let pruner: (&str, &[&str]) =
        ("pruner", &["id", "locked_by", "locked_until", "handler_id", "key", "caught_up_to", "walked", "size"]);
    let wanted: Vec<_> = TABLES.into_iter().chain([pruner]).collect();
    let found = columns_found(connection, prefix, &wanted).await?;
    Ok(tables::check(place, CURE, &wanted, &found))
}

/// Reads the columns of those of the tables that exist.
async fn columns_found(
    connection: &mut SqliteConnection,
    prefix: &Prefix,
    wanted: &[Table],
) -> Result<HashMap<String, Vec<String>>, sqlx::Error> {
    let mut found = HashMap::new();
    for (table, _) in wanted {
        let there = columns_of(connection, &format!("{}{table}", prefix.as_str())).await?;
        if !there.is_empty() {
            found.insert((*table).to_owned(), there);
        }
    }
    Ok(found)
}

async fn columns_of(connection: &mut SqliteConnection, table: &str) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT name FROM pragma_table_info(?1)").bind(table).fetch_all(connection).await
}
