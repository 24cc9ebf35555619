//! Tables of another version of idem, or incomplete ones.

use idem_core::store::{CallRows, Claims, OutboxRows, Transactions};
use idem_core::{Error, Postgres};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::world::{DEADLINE, World, world};

impl World {
    async fn run(&mut self, sql: &str) {
        self.other.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }

    /// The error of a start, with migration and with verification only; `None` if it starts.
    async fn starts(&self) -> Option<String> {
        let options = || Postgres::options(&self.url).schema(&self.schema);
        let refused = [options().connect().await, options().verify_only().connect().await].map(why);
        assert_eq!(refused[0], refused[1]);
        refused.into_iter().next().flatten()
    }

    /// The error of something that uses an outbox, in a store that starts; `None` if it starts too.
    async fn stages(&self) -> Option<String> {
        let store = Postgres::options(&self.url).schema(&self.schema).verify_only().connect().await.unwrap();
        why(store.register_outbox("billing").await)
    }

    /// The error of something that uses the namespaces of calls.
    async fn calls(&self) -> Option<String> {
        let store = Postgres::options(&self.url).schema(&self.schema).verify_only().connect().await.unwrap();
        let handler = store.register("billing", &["order_paid"]).await.unwrap()[0];
        why(store.call_namespace(handler).await)
    }
}

/// The reason of a refusal; `None` if it is none.
fn why<T>(answer: Result<T, Error>) -> Option<String> {
    match answer {
        Ok(_) => None,
        Err(Error::Config(why)) => Some(why),
        Err(other) => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_unless_it_says_that_it_supports_this_version() {
    let Some(mut world) = world().await else { return };
    world.run("INSERT INTO migrations (version, name, supports) VALUES (7, 'later', 7)").await;
    let why = world.starts().await.unwrap();
    for part in [world.schema.as_str(), "0007", "later", "0006"] {
        assert!(why.contains(part), "{why}");
    }
    world.run("UPDATE migrations SET supports = 1 WHERE version = 7").await;
    assert_eq!(world.starts().await, None, "it only adds something");
    world.run("INSERT INTO migrations (version, name, supports) VALUES (8, 'much_later', 7)").await;
    assert!(world.starts().await.unwrap().contains("much_later"));
    world.end().await;
}

#[tokio::test]
async fn a_missing_column_is_named_at_the_start() {
    let Some(mut world) = world().await else { return };
    let asked = "SELECT table_name::text, column_name::text FROM information_schema.columns
                 WHERE table_schema = $1 AND table_name <> 'effects'";
    let query = sqlx::query_as::<_, (String, String)>(asked).bind(&world.schema);
    let columns = query.fetch_all(&mut world.other).await.unwrap();
    assert!(columns.len() > 25, "{columns:?}");
    for (table, column) in columns {
        world.run(&format!("ALTER TABLE {table} RENAME COLUMN {column} TO gone")).await;
        let is_optional = table.starts_with("outbox") || table == "call_namespaces";
        assert_eq!(world.starts().await.is_none(), is_optional, "whether a worker without an outbox needs {table}");
        let refused = match table.as_str() {
            "call_namespaces" => world.calls().await,
            _ if is_optional => world.stages().await,
            _ => world.starts().await,
        };
        let why = refused.unwrap_or_else(|| panic!("it starts without {column} of {table}"));
        for part in [&world.schema, &table, &column, "Postgres::migrations()"] {
            assert!(why.contains(part), "{why}");
        }
        world.run(&format!("ALTER TABLE {table} RENAME COLUMN gone TO {column}")).await;
    }
    world.run("DROP TABLE inbox_messages").await;
    assert!(world.starts().await.unwrap().contains("the table `inbox_messages`"));
    world.end().await;
}

#[tokio::test]
async fn the_error_for_a_trigger_that_is_disabled_names_the_statement_that_enables_it() {
    let Some(mut world) = world().await else { return };
    let cure = format!("ALTER TABLE \"{}\".processed_messages ENABLE ALWAYS TRIGGER refuse_commit", world.schema);
    for enabled in ["DISABLE", "ENABLE REPLICA"] {
        world.run(&format!("ALTER TABLE processed_messages {enabled} TRIGGER refuse_commit")).await;
        let why = world.starts().await.unwrap_or_else(|| panic!("it starts with {enabled}"));
        assert!(why.ends_with(&cure), "{enabled}: {why}");
    }
    world.run(&cure).await;
    assert_eq!(world.starts().await, None);
    world.run("DROP TRIGGER refuse_commit ON processed_messages").await;
    let why = world.starts().await.unwrap();
    assert!(why.contains("the deferrable trigger `refuse_commit`") && why.contains("Postgres::migrations()"), "{why}");
    world.end().await;
}

/// Without it a worker from before external calls could take a message whose call was made.
#[tokio::test]
async fn a_trigger_that_leaves_answers_and_is_missing_or_disabled_is_refused_with_its_cure() {
    let Some(mut world) = world().await else { return };
    let cure = format!("ALTER TABLE \"{}\".inbox_messages ENABLE TRIGGER leave_answer", world.schema);
    for enabled in ["DISABLE", "ENABLE REPLICA"] {
        world.run(&format!("ALTER TABLE inbox_messages {enabled} TRIGGER leave_answer")).await;
        let why = world.starts().await.unwrap_or_else(|| panic!("it starts with {enabled}"));
        assert!(why.ends_with(&cure), "{enabled}: {why}");
    }
    for cure in [cure.as_str(), "ALTER TABLE inbox_messages ENABLE ALWAYS TRIGGER leave_answer"] {
        world.run(cure).await;
        assert_eq!(world.starts().await, None);
    }
    world.run("DROP TRIGGER leave_answer ON inbox_messages").await;
    let why = world.starts().await.unwrap();
    for part in ["the trigger `leave_answer`", "0004_calls.sql", "Postgres::migrations()"] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    let sql = Postgres::migrations().iter().find(|migration| migration.name == "0004_calls.sql").unwrap().sql;
    let create = sql.find("CREATE TRIGGER leave_answer").unwrap();
    world.run(sql[create..].split_once(';').unwrap().0).await;
    assert_eq!(world.starts().await, None);
    world.end().await;
}

/// The application has a table of that name in `.schema("public")`.
#[tokio::test]
async fn a_foreign_table_with_the_name_of_one_of_the_outbox_is_left_alone() {
    let Some(mut world) = world().await else { return };
    world.run(&format!("DROP SCHEMA {0} CASCADE; CREATE SCHEMA {0}", world.schema)).await;
    world.run("CREATE TABLE outbox_messages (mine text)").await;
    let store = Postgres::options(&world.url).schema(&world.schema).connect().await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(world.starts().await, None, "nothing stages");
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'outbox%'";
    assert_eq!(world.number(tables).await, 1, "a migration is applied whole or not at all");
    assert_eq!(world.number("SELECT count(*) FROM migrations WHERE version = 2").await, 0);
    let why = world.stages().await.unwrap();
    for part in [&world.schema, "\"outbox_messages\"", ".schema(..)", "rename"] {
        assert!(why.contains(part), "{why}");
    }
    world.run("ALTER TABLE outbox_messages RENAME TO mine").await;
    assert_eq!(world.starts().await, None, "it migrates");
    assert_eq!(world.stages().await, None);
    world.end().await;
}

#[tokio::test]
async fn an_outbox_whose_table_is_empty_after_a_crash_is_refused_where_it_is_used() {
    let Some(mut world) = world().await else { return };
    world.run("ALTER TABLE outbox_messages SET UNLOGGED").await;
    assert_eq!(world.starts().await, None);
    let why = world.stages().await.unwrap();
    assert!(why.contains("\"outbox_messages\"") && why.contains("SET LOGGED"), "{why}");
    world.end().await;
}

/// Workers of the version before do without the table, and the ledger lets them start beside it.
#[tokio::test]
async fn the_namespaces_of_calls_are_added_beside_workers_of_the_version_before() {
    let Some(mut world) = world().await else { return };
    world.run("DROP TABLE call_namespaces; DELETE FROM migrations WHERE version = 5").await;
    world.store.register("billing", &["pays"]).await.unwrap();
    let why = world.calls().await.unwrap();
    assert!(why.contains("0005_call_namespaces.sql") && why.contains("external call"), "{why}");
    assert_eq!(world.starts().await, None, "it migrates");
    assert_eq!(world.calls().await, None);
    assert_eq!(world.number("SELECT max(supports)::bigint FROM migrations").await, 1, "all versions may use them");
    world.store.register("billing", &["ships"]).await.unwrap();
    world.end().await;
}

/// Statements of workers wait behind the migration while it waits, so it waits for a few seconds only. Workers that do
/// without the table start, and a later start migrates.
#[tokio::test]
async fn the_namespaces_of_calls_are_left_out_while_somebody_keeps_the_handlers_locked() {
    let Some(mut world) = world().await else { return };
    world.run("DROP TABLE call_namespaces; DELETE FROM migrations WHERE version = 5").await;
    let mut person = PgConnection::connect(&world.url).await.unwrap();
    let update = format!("BEGIN; UPDATE {}.handlers SET retention = '8 days'", world.schema);
    person.execute(sqlx::raw_sql(AssertSqlSafe(update))).await.unwrap();
    let start = Postgres::options(&world.url).schema(&world.schema).connect();
    tokio::time::timeout(DEADLINE, start).await.unwrap().unwrap();
    let why = world.calls().await.unwrap();
    assert!(why.contains("0005_call_namespaces.sql"), "{why}");
    person.execute("COMMIT").await.unwrap();
    assert_eq!(world.starts().await, None, "it migrates");
    assert_eq!(world.calls().await, None);
    world.end().await;
}

/// Workers of the version before run beside the migration. It waits for a handler that has written to the inbox, and their
/// statements do not wait behind it for long. They go on with the new columns, too.
#[tokio::test]
async fn columns_are_added_beside_workers_of_the_version_before() {
    let Some(mut world) = world().await else { return };
    world.run("DELETE FROM migrations WHERE version = 4; DROP INDEX inbox_messages_calls").await;
    world.run("DROP TRIGGER leave_answer ON inbox_messages; DROP FUNCTION leave_answer").await;
    let added = ["outbound", "called_at", "called_by", "call_name", "asked_at", "answer"];
    let added = added.map(|column| format!("DROP COLUMN {column}"));
    world.run(&format!("ALTER TABLE inbox_messages {}", added.join(", "))).await;
    let mut handler = PgConnection::connect(&world.url).await.unwrap();
    let locks = format!("BEGIN; LOCK TABLE {}.inbox_messages IN ROW EXCLUSIVE MODE", world.schema);
    handler.execute(sqlx::raw_sql(AssertSqlSafe(locks))).await.unwrap();
    let options = Postgres::options(&world.url).schema(&world.schema);
    let start = tokio::spawn(async move { options.connect().await.map(drop) });
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'inbox_messages'::regclass AND NOT granted";
    while world.number(waits).await == 0 {
        tokio::task::yield_now().await;
    }
    let insert = async |world: &mut World, key: i32| {
        let began = std::time::Instant::now();
        let columns = "handler_id, key, fingerprint, payload, envelope, attempts, state, due_at, error";
        let values = format!("1, int4send({key}), '', '', '', 0, 'scheduled', now(), ''");
        world.run(&format!("INSERT INTO inbox_messages ({columns}) VALUES ({values})")).await;
        began.elapsed()
    };
    for key in 0..5 {
        let waited = insert(&mut world, key).await;
        assert!(waited < std::time::Duration::from_secs(8), "{waited:?}");
    }
    assert!(!start.is_finished());
    handler.execute("COMMIT").await.unwrap();
    start.await.unwrap().unwrap();
    insert(&mut world, 5).await;
    let kept = "SELECT count(*) FROM inbox_messages WHERE starts = 0 AND outbound IS NULL AND answer IS NULL";
    assert_eq!(world.number(kept).await, 6);
    assert_eq!(world.starts().await, None);
    world.end().await;
}
