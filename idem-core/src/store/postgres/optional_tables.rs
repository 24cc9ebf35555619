//! Checks of the tables that only some workers use, where they are used: all others do without them.

use sqlx::{AssertSqlSafe, Row as _};
use tokio::sync::OnceCell;

use crate::store::tables::{self, OptionalTables};
use crate::{BoxError, Error};

use super::Postgres;
use super::answer::Failure;
use super::connection::Connection;
use super::cure::{CURE, grants_on, place};
use super::statement::quoted;
use super::tables::{Found, access, columns};

impl Postgres {
    /// Checks once that these tables exist, are logged, and are accessible to the role.
    pub(super) async fn check_optional(&self, wanted: &OptionalTables, checked: &OnceCell<()>) -> Result<(), Error> {
        checked.get_or_try_init(|| self.optional_tables(wanted)).await.copied()
    }

    async fn optional_tables(&self, wanted: &OptionalTables) -> Result<(), Error> {
        let (name, schema) = (&self.0.name, self.schema());
        let failed = |what: &str, source: BoxError| Error::Database { what: format!("{what} {name}"), source };
        let unclear = |failure: Failure| failed("cannot read the catalog of", failure.into_error());
        let mut connection = self.pool().own().await.map_err(|lost| failed("cannot connect to", lost.into_error()))?;
        let found = columns(&mut connection, schema, wanted.tables).await.map_err(unclear)?;
        if !is_migrated(&mut connection, schema, wanted.migration).await.map_err(unclear)? {
            return Err(not_migrated(schema, connection.session().role(), wanted, &found));
        }
        tables::check(&place(schema), CURE, wanted.tables, &found)?;
        let used: Vec<&str> = wanted.tables.iter().map(|(table, _)| *table).collect();
        let grants = |schema: &str, role: &str| grants_on(wanted.tables, schema, role);
        let lax = !connection.is_durable();
        access(&mut connection, schema, &used, &grants, lax, &failed).await?;
        connection.put_back();
        Ok(())
    }
}

async fn is_migrated(connection: &mut Connection, schema: &str, migration: i64) -> Result<bool, Failure> {
    let text = format!("SELECT EXISTS (SELECT FROM {}.migrations WHERE version = $1)", quoted(schema));
    let asked = sqlx::query(AssertSqlSafe(text)).bind(migration as i32);
    let rows = connection.autocommit(asked).await?;
    Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
}

/// The error of tables that are used without their migration. A table that is there nevertheless is not idem's.
fn not_migrated(schema: &str, role: &str, wanted: &OptionalTables, found: &Found) -> Error {
    let OptionalTables { file, needed_by, tables, .. } = wanted;
    let foreign = tables.iter().map(|(table, _)| *table).find(|table| found.contains_key(*table));
    Error::Config(match foreign {
        Some(table) => format!(
            "the schema {schema:?} has a table {table:?} that idem has not created, so {file} cannot create its \
             tables there: give the store a schema of its own, `.schema(..)`, or rename that table and start again"
        ),
        None => format!(
            "the schema {schema:?} lacks {file}, and {needed_by} needs its tables: run that SQL of \
             `Postgres::migrations()` as the owner of idem's tables (the comment at the top of the SQL shows the \
             command), then {}",
            grants_on(tables, schema, role)
        ),
    })
}
