//! idem's own tables, and the ledger of what has been done to them.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};

use crate::Error;

use super::answer::Failure;
use super::check::Failed;
use super::lanes::{Lane, OWN};
use super::sql::quoted;

/// Number, name and text of each migration, in order. The files write the ledger themselves, so that they can be run by
/// hand. A migration keeps the version of idem before it working: both run side by side during a rolling deploy.
const MIGRATIONS: &[(i32, &str, &str)] =
    &[(1, "0001_claims_and_inbox.sql", include_str!("../../../migrations/postgres/0001_claims_and_inbox.sql"))];

/// A migration may wait for another process that migrates, and for the tables' locks.
const PATIENCE: Duration = Duration::from_secs(120);

/// Applies what is missing, or says what is missing.
pub(super) async fn run(lane: &mut Lane, schema: &str, verify_only: bool, failed: &Failed<'_>) -> Result<(), Error> {
    let explain = |failure: Failure| match failure.code() {
        Some("42501") => Error::Refused(format!(
            "the role may not create or read idem's tables in the schema {schema:?} ({}): run the files of \
             idem-core/migrations/postgres as a role that may, as their heads say, and connect with `.verify_only()`",
            failure.into_error()
        )),
        _ => failed("cannot migrate", failure.into_error()),
    };
    let missing = look(lane, schema).await.map_err(explain)?;
    if missing.is_empty() {
        return Ok(());
    }
    if verify_only {
        let files = missing.iter().map(|(_, file, _)| *file).collect::<Vec<_>>().join(", ");
        return Err(Error::Refused(format!(
            "the schema {schema:?} lacks {files}: run it from idem-core/migrations/postgres as a role that may create \
             tables, as its head says, or connect once without `.verify_only()`"
        )));
    }
    apply(lane, schema).await.map_err(explain)
}

/// In one transaction under a lock, so that of ten processes that start at once one migrates and nine find it done.
/// Where it fails, the connection is closed with the transaction.
async fn apply(lane: &mut Lane, schema: &str) -> Result<(), Failure> {
    let begin =
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0";
    lane.ask(OWN, sqlx::raw_sql(begin)).await?;
    let lock = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('idem migrate ' || $1, 0))");
    lane.bound(PATIENCE, lock.bind(schema)).await?;
    // Asked before, because IF NOT EXISTS wants the right to create schemas also where the schema is there.
    let there = sqlx::query("SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1").bind(schema);
    if lane.bound(OWN, there).await?.is_empty() {
        lane.ask(PATIENCE, sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {}", quoted(schema))))).await?;
    }
    let path = format!("SET LOCAL search_path TO {}", quoted(schema));
    for (_, file, text) in missing(lane, schema).await? {
        lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(path.clone()))).await?;
        lane.ask(PATIENCE, sqlx::raw_sql(text)).await?;
        tracing::info!(schema, file, "migrated");
    }
    lane.ask(OWN, sqlx::raw_sql("COMMIT")).await?;
    Ok(())
}

/// In a transaction, so that a pooler gives all of it to one session.
async fn look(lane: &mut Lane, schema: &str) -> Result<Vec<(i32, &'static str, &'static str)>, Failure> {
    lane.ask(OWN, sqlx::raw_sql("BEGIN")).await?;
    let missing = missing(lane, schema).await?;
    lane.ask(OWN, sqlx::raw_sql("COMMIT")).await?;
    Ok(missing)
}

/// What the ledger does not have. What it has beyond this version's migrations belongs to a newer version.
async fn missing(lane: &mut Lane, schema: &str) -> Result<Vec<(i32, &'static str, &'static str)>, Failure> {
    let ledger = format!("{}.migrations", quoted(schema));
    let there = sqlx::query("SELECT to_regclass($1) IS NOT NULL").bind(&ledger);
    let there = lane.bound(OWN, there).await?.first().map_or(Ok(false), |row| row.try_get(0))?;
    let mut applied = Vec::<i32>::new();
    if there {
        let asked = sqlx::raw_sql(AssertSqlSafe(format!("SELECT version FROM {ledger}")));
        for row in lane.ask(OWN, asked).await? {
            applied.push(row.try_get(0)?);
        }
    }
    Ok(MIGRATIONS.iter().filter(|(version, ..)| !applied.contains(version)).copied().collect())
}
