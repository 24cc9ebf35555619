//! Creation and verification of the tables.

use std::time::Duration;

use sqlx::Row as _;

use crate::Error;
use crate::store::Migration;
use crate::store::sql::ledger::{self, Applied};
use crate::store::sql::tables;

use super::answer::Failure;
use super::check::{self, Failed, For};
use super::connection::Connection;
use super::quote::{literal, quoted};
use super::tables::{REMEDY, grants, place};

/// All migrations, in order. The files write the ledger themselves, so that they can be run by hand. Old and new versions of
/// idem run side by side during a rolling deploy, so a migration either keeps the previous version working, or records in the
/// ledger (`supports`) that it does not.
pub(super) const MIGRATIONS: &[Migration] = &[Migration {
    version: 1,
    name: "0001_tables.sql",
    sql: include_str!("../../../migrations/postgres/0001_tables.sql"),
}];

/// How long a migration may wait for another process that migrates, and for the tables' locks.
const PATIENCE: Duration = Duration::from_secs(120);

/// The SQLSTATE of a missing privilege.
const DENIED: &str = "42501";

/// Those of a name that a table, an index or a function has already.
const TAKEN: [&str; 2] = ["42P07", "42723"];

/// Runs the missing migrations as this role, or returns an error that names them.
pub(super) async fn run(
    connection: &mut Connection,
    schema: &str,
    role: &str,
    (of, verify_only): (For, bool),
    failed: &Failed<'_>,
) -> Result<(), Error> {
    let explain = |failure: Failure| match failure.code() {
        Some(DENIED) => Error::Denied {
            what: format!(
                "the role {role:?} may not create idem's tables in the schema {schema:?} ({})",
                failure.into_error()
            ),
            source: format!(
                "run the SQL of `Postgres::migrations()` as a role that may (the comment at the top of the SQL shows \
                 the command), then {}; and connect with `.verify_only()`",
                grants(schema, role, of)
            )
            .into(),
        },
        Some(code) if TAKEN.contains(&code) => Error::Config(format!(
            "the schema {schema:?} has a table of another origin under a name of idem's ({}): give the store a schema \
             of its own, `.schema(..)`, or rename that table and start again",
            failure.into_error()
        )),
        // An undefined column, which can only be one of the ledger's.
        Some("42703") => tables::lacks(
            &place(schema),
            REMEDY,
            &format!("a column of the table `migrations` ({})", failure.into_error()),
        ),
        _ => failed("cannot migrate", failure.into_error()),
    };
    let applied = read_ledger(connection, schema).await.map_err(|failure| match failure.code() {
        // The schema is there, or nothing would have been denied.
        Some(DENIED) => Error::Denied {
            what: format!("the role {role:?} may not read the schema {schema:?} ({})", failure.into_error()),
            source: format!("as its owner, run {}", grants(schema, role, of)).into(),
        },
        _ => explain(failure),
    })?;
    let missing = ledger::missing(&place(schema), MIGRATIONS, &applied)?;
    check::path(connection, schema, failed).await?;
    if missing.is_empty() {
        return Ok(());
    }
    if verify_only {
        let files = missing.iter().map(|migration| migration.name).collect::<Vec<_>>().join(", ");
        return Err(Error::Config(format!(
            "the schema {schema:?} lacks {files}: run the SQL of `Postgres::migrations()` as a role that may create \
             tables, and that owns idem's other tables (the comment at the top of the SQL shows the command), or connect once \
             as that role without `.verify_only()`; then {}",
            grants(schema, role, of)
        )));
    }
    create(connection, schema).await.map_err(explain)?;
    // Checked again, since a schema that did not exist could not hide anything; an error rolls the creation back.
    check::path(connection, schema, failed).await?;
    let applied = read_ledger(connection, schema).await.map_err(explain)?;
    let missing = ledger::missing(&place(schema), MIGRATIONS, &applied)?;
    apply(connection, schema, missing).await.map_err(explain)
}

/// Begins one transaction under a lock, so that of ten processes that start at once one migrates and nine find it done,
/// and creates the schema. If anything fails, the connection is closed, which rolls the transaction back.
async fn create(connection: &mut Connection, schema: &str) -> Result<(), Failure> {
    let begin =
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0";
    connection.text(begin).await?;
    let lock = sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('idem migrate ' || $1, 0))");
    connection.bound(PATIENCE, lock.bind(schema)).await?;
    // Checked first, because IF NOT EXISTS requires the CREATE privilege even if the schema exists.
    let there = format!("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = {}", literal(schema));
    if connection.text(there).await?.is_empty() {
        connection.text(format!("CREATE SCHEMA {}", quoted(schema))).await?;
    }
    Ok(())
}

/// Runs the missing migrations, and commits.
async fn apply(connection: &mut Connection, schema: &str, missing: Vec<Migration>) -> Result<(), Failure> {
    let path = format!("SET LOCAL search_path TO {}", quoted(schema));
    for Migration { name, sql, .. } in missing {
        connection.text(path.clone()).await?;
        connection.ask(PATIENCE, sqlx::raw_sql(sql)).await?;
        tracing::info!(schema, file = name, "migrated");
    }
    connection.text("COMMIT").await?;
    Ok(())
}

/// Reads the ledger, by statements without bound values, which a pooler may run in any session.
async fn read_ledger(connection: &mut Connection, schema: &str) -> Result<Vec<Applied>, Failure> {
    let ledger = format!("{}.migrations", quoted(schema));
    let there = connection.text(format!("SELECT to_regclass({}) IS NOT NULL", literal(&ledger))).await?;
    let there = there.first().map_or(Ok(false), |row| row.try_get(0))?;
    let mut applied = Vec::new();
    if there {
        let asked = format!("SELECT version, name, supports FROM {ledger}");
        for row in connection.text(asked).await? {
            let (version, supports): (i32, i32) = (row.try_get(0)?, row.try_get(2)?);
            applied.push(Applied { version: version.into(), name: row.try_get(1)?, supports: supports.into() });
        }
    }
    Ok(applied)
}
