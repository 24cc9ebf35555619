//! Checks of the tables of the outbox, where an outbox is used: a worker without one does without them.

use sqlx::{AssertSqlSafe, Row as _};

use crate::store::migration::OUTBOX as MIGRATION;
use crate::store::tables::{self, OUTBOX};
use crate::{BoxError, Error};

use super::Postgres;
use super::answer::Failure;
use super::connection::Connection;
use super::cure::{CURE, outbox_grants, place};
use super::statement::quoted;
use super::tables::{Found, access, columns};

impl Postgres {
    /// Checks once that the tables of the outbox exist, are logged, and are accessible to the role.
    pub(super) async fn check_outbox(&self) -> Result<(), Error> {
        self.0.outbox_checked.get_or_try_init(|| self.outbox_tables()).await.copied()
    }

    async fn outbox_tables(&self) -> Result<(), Error> {
        let (name, schema) = (&self.0.name, self.schema());
        let failed = |what: &str, source: BoxError| Error::Database { what: format!("{what} {name}"), source };
        let unclear = |failure: Failure| failed("cannot read the catalog of", failure.into_error());
        let mut connection = self.pool().own().await.map_err(|lost| failed("cannot connect to", lost.into_error()))?;
        let found = columns(&mut connection, schema, &OUTBOX).await.map_err(unclear)?;
        if !is_migrated(&mut connection, schema).await.map_err(unclear)? {
            return Err(not_migrated(schema, connection.session().role(), &found));
        }
        tables::check(&place(schema), CURE, &OUTBOX, &found)?;
        let (used, lax) = (OUTBOX.map(|(table, _)| table), !connection.is_durable());
        access(&mut connection, schema, &used, outbox_grants, lax, &failed).await?;
        connection.put_back();
        Ok(())
    }
}

async fn is_migrated(connection: &mut Connection, schema: &str) -> Result<bool, Failure> {
    let text = format!("SELECT EXISTS (SELECT FROM {}.migrations WHERE version = $1)", quoted(schema));
    let asked = sqlx::query(AssertSqlSafe(text)).bind(MIGRATION as i32);
    let rows = connection.autocommit(asked).await?;
    Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
}

/// The error of an outbox without its tables. A table that is there nevertheless is not idem's.
fn not_migrated(schema: &str, role: &str, found: &Found) -> Error {
    let foreign = OUTBOX.iter().map(|(table, _)| *table).find(|table| found.contains_key(*table));
    Error::Config(match foreign {
        Some(table) => format!(
            "the schema {schema:?} has a table {table:?} that idem has not created, so 0002_outbox.sql cannot create its \
             tables there: give the store a schema of its own, `.schema(..)`, or rename that table and start again"
        ),
        None => format!(
            "the schema {schema:?} lacks 0002_outbox.sql, and an outbox needs its tables: run that SQL of \
             `Postgres::migrations()` as a role that may create tables (the comment at the top of the SQL shows the \
             command), then {}",
            outbox_grants(schema, role)
        ),
    })
}
