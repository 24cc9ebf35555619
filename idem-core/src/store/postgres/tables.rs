//! Checks of the tables, so that an acked message cannot be lost and no statement fails later.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::Error;
use crate::store::sql::tables::{self, TABLES, Table};

use super::answer::Failure;
use super::check::{Failed, For, reject_or_warn};
use super::connection::Connection;
use super::limits::OWN;
use super::quote::{literal, quoted};

/// The tables of this database only: the mark of a batch, which the trigger reads, and the place of the walk of prune.
const HERE: [Table; 2] = [("processed_messages", "batch_xid"), ("pruner", "id block caught_up_to")];

/// Checks that the tables exist with their columns, are logged and accessible to the role, that the trigger is enabled, and that
/// the numbers of rows are new.
pub(super) async fn check(
    connection: &mut Connection,
    schema: &str,
    of: For,
    failed: &Failed<'_>,
) -> Result<(), Error> {
    // All but the ledger, which was read before.
    let used: Vec<&str> = TABLES.iter().skip(1).map(|(table, _)| *table).chain(["pruner"]).collect();
    let asked = sqlx::query(
        "SELECT c.relname::text, c.relpersistence = 'p', current_user::text,
                has_table_privilege(c.oid, 'SELECT') AND ($3 OR has_table_privilege(c.oid, 'INSERT')
                AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')),
                (SELECT t.tgenabled::text FROM pg_catalog.pg_trigger AS t
                 WHERE t.tgrelid = c.oid AND t.tgname = 'refuse_commit' AND t.tgdeferrable)
         FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
         WHERE n.nspname = $1 AND c.relname = ANY($2)",
    );
    let unclear = |failure: Failure| failed("cannot read the catalog of", failure.into_error());
    let asked = asked.bind(schema).bind(&used[..]).bind(of == For::Operator);
    let rows = connection.read_only(OWN, asked).await.map_err(unclear)?;
    for row in rows {
        let read = || Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?));
        let (table, logged, role, open, trigger): (String, bool, String, bool, Option<String>) =
            read().map_err(|error: sqlx::Error| unclear(error.into()))?;
        if !open {
            return Err(Error::Denied {
                what: format!("the role {role:?} may not use the table {table:?} of the schema {schema:?}"),
                source: format!("as its owner, run {}", grants(schema, &role, of)).into(),
            });
        }
        if !logged {
            let why = format!(
                "the table {table:?} of the schema {schema:?} is not logged, and empty after a crash: ALTER TABLE {}.{} \
                 SET LOGGED",
                quoted(schema),
                quoted(&table)
            );
            reject_or_warn(why, of)?;
        }
        if table == "processed_messages" {
            is_enabled(schema, trigger.as_deref())?;
        }
    }
    columns(connection, schema, failed).await?;
    sequences(connection, schema).await.map_err(unclear)?
}

/// Checks that all tables and columns are there, by a statement for each table that names them and reads no row.
async fn columns(connection: &mut Connection, schema: &str, failed: &Failed<'_>) -> Result<(), Error> {
    let name = quoted(schema);
    let read = |(table, columns): &Table| {
        let columns: Vec<String> = columns.split(' ').map(|column| format!("{table}.{column}")).collect();
        format!("SELECT {} FROM {name}.{table} LIMIT 0", columns.join(", "))
    };
    let all: Vec<String> = TABLES.iter().chain(&HERE).map(read).collect();
    connection.text(all.join("; ")).await.map(drop).map_err(|failure| match failure.code() {
        Some("42P01" | "42703") => {
            let what = format!("a table or a column ({})", failure.into_error());
            tables::lacks(&place(schema), REMEDY, &what)
        }
        _ => failed("cannot read the tables of", failure.into_error()),
    })
}

/// The tables whose rows are numbered by a sequence.
const NUMBERED: [&str; 4] = ["inbox_messages", "outbox_messages", "outbox_dead", "operations"];

/// Checks that no sequence of these tables is behind its table. Logical replication copies no sequences: behind a switch,
/// a message that is staged later would get a lower number, and new rows the numbers of others. A role that may not read
/// the sequences checks nothing.
async fn sequences(connection: &mut Connection, schema: &str) -> Result<Result<(), Error>, Failure> {
    let schema_name = quoted(schema);
    let compare = |table: &&str| {
        let (of, name) = (format!("{schema_name}.{table}"), literal(&format!("{schema_name}.{table}")));
        // As the view `pg_sequences` has it: nothing else keeps the value from being read before the privilege is checked. Without
        // the privilege it is null, and no row is above it.
        let last = "SELECT CASE WHEN pg_catalog.has_sequence_privilege(sequence, 'SELECT')
                        THEN coalesce(pg_catalog.pg_sequence_last_value(sequence::regclass), 0) END";
        let behind = match *table {
            // Its primary key begins with the outbox. Above the last value it has no row, also none that was deleted.
            "outbox_messages" => format!(
                "EXISTS (SELECT FROM {schema_name}.outboxes AS o, LATERAL (
                     SELECT FROM {of} AS m WHERE m.outbox_id = o.id AND m.id > ({last}) LIMIT 1) AS above)"
            ),
            _ => format!("EXISTS (SELECT FROM {of} WHERE id > ({last}))"),
        };
        // The snapshot of the statement is older than the value of the sequence.
        format!(
            "SELECT {name}, sequence FROM (SELECT pg_catalog.pg_get_serial_sequence({name}, 'id') AS sequence) AS of
             WHERE {behind}"
        )
    };
    let compared: Vec<_> = NUMBERED.iter().map(compare).collect();
    let rows = connection.text(compared.join(" UNION ALL ")).await?;
    let remedy = |row: &PgRow| {
        let (table, sequence): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        Ok(format!("SELECT setval({}, (SELECT max(id) FROM {table}))", literal(&sequence)))
    };
    let remedies = rows.iter().map(remedy).collect::<Result<Vec<_>, sqlx::Error>>()?;
    Ok(match remedies.is_empty() {
        true => Ok(()),
        false => Err(Error::Config(format!(
            "the schema {schema:?} has sequences that are behind their tables (logical replication copies none), so numbers \
             would be given twice, and messages out of their order: stop its workers, and as the owner of the tables, run {}",
            remedies.join("; ")
        ))),
    })
}

/// Checks the trigger. Without it, a COMMIT of a handler would lose the later messages of its batch. It has to be enabled as
/// ALWAYS, which `pg_restore --disable-triggers` does not do: otherwise a handler that may set `session_replication_role`
/// turns it off.
fn is_enabled(schema: &str, enabled: Option<&str>) -> Result<(), Error> {
    let Some(enabled) = enabled else {
        let trigger = "the deferrable trigger `refuse_commit` of the table `processed_messages`";
        return Err(tables::lacks(&place(schema), REMEDY, trigger));
    };
    if enabled == "A" {
        return Ok(());
    }
    Err(Error::Config(format!(
        "the trigger refuse_commit of the schema {schema:?} is not enabled as ALWAYS, so a COMMIT by a handler can lose other \
         messages of its batch: as the owner of the table, run ALTER TABLE {}.processed_messages ENABLE ALWAYS TRIGGER \
         refuse_commit",
        quoted(schema)
    )))
}

/// How to create what is missing.
pub(super) const REMEDY: &str = "create it with the SQL of `Postgres::migrations()`, or give `.schema(..)` a new name; \
                               a new schema has no claims, so all messages are new there";

/// The schema, as named in error messages.
pub(super) fn place(schema: &str) -> String {
    format!("the schema {schema:?}")
}

/// The privileges that the role of a worker needs, or at least that of an operator. Numbers come from identity columns, which need no
/// grant of their own.
pub(super) fn grants(schema: &str, role: &str, of: For) -> String {
    let (schema, role) = (quoted(schema), quoted(role));
    let privileges = match of {
        For::Workers | For::UnsafeWorkers => "SELECT, INSERT, UPDATE, DELETE",
        For::Operator => "SELECT",
    };
    format!("GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT {privileges} ON ALL TABLES IN SCHEMA {schema} TO {role}")
}
