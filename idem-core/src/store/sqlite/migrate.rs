//! The tables: made, or looked for.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use super::answer;
use super::sql::Prefix;
use crate::Error;

/// What there is, in order. Old and new versions of idem work side by side while a new one is rolled out, so each
/// migration has to keep the version before it working, and one that a newer version has applied is no error.
pub(super) const MIGRATIONS: &[(i64, &str)] =
    &[(1, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite/0001_claims_and_inbox.sql")))];

/// For how long the file is asked to go into WAL mode while others use it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Puts the file into WAL mode and runs what it lacks, in one transaction.
pub(super) async fn run(connection: &mut SqliteConnection, path: &Path, prefix: &Prefix) -> Result<(), Error> {
    let failed = |error: sqlx::Error| Error::Database { what: answer::trouble(path, &error), source: error.into() };
    let mode = wal(connection).await.map_err(failed)?;
    if mode != "wal" {
        return Err(Error::Refused(format!(
            "the SQLite file {} stays in journal mode {mode:?}, in which readers block the writer: keep it on a local \
             disk, where WAL works",
            path.display()
        )));
    }
    let mut txn = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    let applied = applied(&mut txn, prefix).await.map_err(failed)?;
    for (version, text) in MIGRATIONS.iter().filter(|(version, _)| !applied.contains(version)) {
        sqlx::raw_sql(prefix.sql(text)).execute(&mut *txn).await.map_err(|error| Error::Database {
            what: format!(
                "migration {version:04} does not fit the SQLite file {}: if tables of another origin begin with {:?}, \
                 choose another .prefix(..)",
                path.display(),
                prefix.as_str()
            ),
            source: error.into(),
        })?;
    }
    txn.commit().await.map_err(failed)
}

/// Looks for what there has to be, and changes nothing.
pub(super) async fn verify(connection: &mut SqliteConnection, path: &Path, prefix: &Prefix) -> Result<(), Error> {
    let failed = |error: sqlx::Error| Error::Database { what: answer::trouble(path, &error), source: error.into() };
    let path = path.display();
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(failed)?;
    if mode != "wal" {
        return Err(Error::Refused(format!(
            "the SQLite file {path} is in journal mode {mode:?}: run `PRAGMA journal_mode = WAL` on it once, or connect \
             once without verify_only()"
        )));
    }
    let applied = applied(connection, prefix).await.map_err(failed)?;
    let missing = MIGRATIONS.iter().map(|(version, _)| *version).filter(|version| !applied.contains(version));
    let missing = missing.map(|version| format!("{version:04}")).collect::<Vec<_>>();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the SQLite file {path} lacks migration {} under the prefix {:?}: connect once without verify_only(), or run it by \
         hand from idem-core/migrations/sqlite",
        missing.join(", "),
        prefix.as_str()
    )))
}

/// Asks for WAL until it is granted: the change needs the file for itself, and SQLite does not wait for that.
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

/// The versions in the ledger; none where there is no ledger.
async fn applied(connection: &mut SqliteConnection, prefix: &Prefix) -> Result<BTreeSet<i64>, sqlx::Error> {
    let ledger = format!("{}migrations", prefix.as_str());
    let exists: bool = sqlx::query_scalar(LEDGER).bind(ledger).fetch_one(&mut *connection).await?;
    if !exists {
        return Ok(BTreeSet::new());
    }
    let versions = sqlx::query_scalar(prefix.sql(r#"SELECT version FROM "idem_migrations""#));
    Ok(versions.fetch_all(connection).await?.into_iter().collect())
}
