//! Creation and verification of the tables.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};

use crate::Error;
use crate::store::ledger::{self, Applied};
use crate::store::tables;

use super::answer::Failure;
use super::check::{self, Failed};
use super::cure::{CURE, place};
use super::lane::Lane;
use super::limits::OWN;
use super::statement::quoted;

/// Number, name and text of each migration, in order. The files write the ledger themselves, so that they can be run by
/// hand. Old and new versions of idem run side by side during a rolling deploy, so each migration keeps the previous
/// version working, and records that in the ledger (`supports`).
const MIGRATIONS: &[Migration] =
    &[(1, "0001_claims_and_inbox.sql", include_str!("../../../migrations/postgres/0001_claims_and_inbox.sql"))];

type Migration = (i32, &'static str, &'static str);

/// How long a migration may wait for another process that migrates, and for the tables' locks.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the missing migrations, or returns an error that names them.
pub(super) async fn run(lane: &mut Lane, schema: &str, verify_only: bool, failed: &Failed<'_>) -> Result<(), Error> {
    let explain = |failure: Failure| match failure.code() {
        Some("42501") => Error::Config(format!(
            "the role may not create or read idem's tables in the schema {schema:?} ({}): run the files of \
             idem-core/migrations/postgres as a role that may, as their heads say, and connect with `.verify_only()`",
            failure.into_error()
        )),
        // An undefined column, which can only be one of the ledger's.
        Some("42703") => tables::lacks(
            &place(schema),
            CURE,
            &format!("a column of the table `migrations` ({})", failure.into_error()),
        ),
        _ => failed("cannot migrate", failure.into_error()),
    };
    let missing = unknown(schema, look(lane, schema).await.map_err(explain)?)?;
    check::path(lane, schema, failed).await?;
    if missing.is_empty() {
        return Ok(());
    }
    if verify_only {
        let files = missing.iter().map(|(_, file, _)| *file).collect::<Vec<_>>().join(", ");
        return Err(Error::Config(format!(
            "the schema {schema:?} lacks {files}: run it from idem-core/migrations/postgres as a role that may create \
             tables, as its head says, or connect once without `.verify_only()`"
        )));
    }
    create(lane, schema).await.map_err(explain)?;
    // Checked again, since a schema that did not exist could not hide anything; an error rolls the creation back.
    check::path(lane, schema, failed).await?;
    let applied = ledger(lane, schema).await.map_err(explain)?;
    apply(lane, schema, unknown(schema, applied)?).await.map_err(explain)
}

/// Begins one transaction under a lock, so that of ten processes that start at once one migrates and nine find it done,
/// and creates the schema. If anything fails, the connection is closed, which rolls the transaction back.
async fn create(lane: &mut Lane, schema: &str) -> Result<(), Failure> {
    let begin =
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0";
    lane.ask(OWN, sqlx::raw_sql(begin)).await?;
    let lock = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('idem migrate ' || $1, 0))");
    lane.bound(PATIENCE, lock.bind(schema)).await?;
    // Checked first, because IF NOT EXISTS requires the CREATE privilege even if the schema exists.
    let there = sqlx::query("SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1").bind(schema);
    if lane.bound(OWN, there).await?.is_empty() {
        lane.ask(PATIENCE, sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {}", quoted(schema))))).await?;
    }
    Ok(())
}

/// Runs the missing migrations, and commits.
async fn apply(lane: &mut Lane, schema: &str, missing: Vec<Migration>) -> Result<(), Failure> {
    let path = format!("SET LOCAL search_path TO {}", quoted(schema));
    for (_, file, text) in missing {
        lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(path.clone()))).await?;
        lane.ask(PATIENCE, sqlx::raw_sql(text)).await?;
        tracing::info!(schema, file, "migrated");
    }
    lane.ask(OWN, sqlx::raw_sql("COMMIT")).await?;
    Ok(())
}

/// Reads the ledger in a transaction, so that a pooler runs all of it in one session.
async fn look(lane: &mut Lane, schema: &str) -> Result<Vec<Applied>, Failure> {
    lane.ask(OWN, sqlx::raw_sql("BEGIN")).await?;
    let applied = ledger(lane, schema).await?;
    lane.ask(OWN, sqlx::raw_sql("COMMIT")).await?;
    Ok(applied)
}

/// Returns the migrations that the ledger lacks. Unknown migrations in the ledger come from a newer version, which has
/// to support this one.
fn unknown(schema: &str, applied: Vec<Applied>) -> Result<Vec<Migration>, Error> {
    let latest = MIGRATIONS.iter().map(|(version, ..)| i64::from(*version)).max().unwrap_or(0);
    ledger::check(&place(schema), latest, &applied)?;
    let is_there = |version: i32| applied.iter().any(|applied| applied.version == i64::from(version));
    Ok(MIGRATIONS.iter().filter(|(version, ..)| !is_there(*version)).copied().collect())
}

async fn ledger(lane: &mut Lane, schema: &str) -> Result<Vec<Applied>, Failure> {
    let ledger = format!("{}.migrations", quoted(schema));
    let there = sqlx::query("SELECT to_regclass($1) IS NOT NULL").bind(&ledger);
    let there = lane.bound(OWN, there).await?.first().map_or(Ok(false), |row| row.try_get(0))?;
    let mut applied = Vec::new();
    if there {
        let asked = format!("SELECT version, name, supports FROM {ledger}");
        for row in lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(asked))).await? {
            let (version, supports): (i32, i32) = (row.try_get(0)?, row.try_get(2)?);
            applied.push(Applied { version: version.into(), name: row.try_get(1)?, supports: supports.into() });
        }
    }
    Ok(applied)
}
