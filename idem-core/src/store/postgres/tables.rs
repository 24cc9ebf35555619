//! Checks of the tables, so that an acked message cannot be lost and no statement fails later.

use std::collections::HashMap;

use sqlx::Row as _;

use crate::Error;
use crate::store::tables::{self, TABLES, Table};

use super::answer::Failure;
use super::check::{Failed, reject_or_warn};
use super::connection::Connection;
use super::cure::{CURE, grants, place};
use super::trigger;

/// The columns that were found, by table.
pub(super) type Found = HashMap<String, Vec<String>>;

/// The tables of this database only: the mark of a batch, which the trigger reads, and the place of the walk of prune.
const HERE: [Table; 2] = [("processed_messages", &["batch_xid"]), ("pruner", &["id", "block", "caught_up_to"])];

/// Checks that the tables that every worker uses exist, are logged, and are accessible to the role.
pub(super) async fn check(
    connection: &mut Connection,
    schema: &str,
    allow_unsafe: bool,
    failed: &Failed<'_>,
) -> Result<(), Error> {
    let unclear = |failure: Failure| failed("cannot read the catalog of", failure.into_error());
    let wanted = [&TABLES[..], &HERE].concat();
    let found = columns(connection, schema, &wanted).await.map_err(unclear)?;
    let place = place(schema);
    tables::check(&place, CURE, &wanted, &found)?;
    trigger::check(connection, schema).await.map_err(unclear)??;
    let used = ["handlers", "former_names", "processed_messages", "inbox_messages", "pruner"];
    access(connection, schema, &used, &grants, allow_unsafe, failed).await
}

/// Checks that these tables are logged and accessible to the role. `grants` has the cure for a schema and a role.
pub(super) async fn access(
    connection: &mut Connection,
    schema: &str,
    used: &[&str],
    grants: &(dyn Fn(&str, &str) -> String + Sync),
    allow_unsafe: bool,
    failed: &Failed<'_>,
) -> Result<(), Error> {
    let asked = sqlx::query(
        "SELECT c.relname::text, c.relpersistence = 'p', current_user::text,
                has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')
         FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = $1 AND c.relname = ANY($2)",
    );
    let unclear = |failure: Failure| failed("cannot read the catalog of", failure.into_error());
    let rows = connection.autocommit(asked.bind(schema).bind(used)).await.map_err(unclear)?;
    for row in rows {
        let read = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?));
        let (table, logged, role, open): (String, bool, String, bool) =
            read().map_err(|error: sqlx::Error| unclear(error.into()))?;
        if !open {
            return Err(Error::Config(format!(
                "the role {role:?} may not use the table {table:?} of the schema {schema:?}: as its owner, run {}",
                grants(schema, &role)
            )));
        }
        if !logged {
            let why = format!(
                "the table {table:?} of the schema {schema:?} is not logged, and empty after a crash: ALTER TABLE {}.{} \
                 SET LOGGED",
                super::statement::quoted(schema),
                super::statement::quoted(&table)
            );
            reject_or_warn(why, allow_unsafe)?;
        }
    }
    Ok(())
}

/// Reads the columns of those of the tables that exist.
pub(super) async fn columns(connection: &mut Connection, schema: &str, wanted: &[Table]) -> Result<Found, Failure> {
    let asked = sqlx::query(
        "SELECT c.relname::text, array_agg(a.attname::text)
         FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE n.nspname = $1 AND c.relname = ANY($2) GROUP BY c.relname",
    );
    let names: Vec<&str> = wanted.iter().map(|(table, _)| *table).collect();
    let mut found = HashMap::new();
    for row in connection.autocommit(asked.bind(schema).bind(&names[..])).await? {
        found.insert(row.try_get(0)?, row.try_get(1)?);
    }
    Ok(found)
}
