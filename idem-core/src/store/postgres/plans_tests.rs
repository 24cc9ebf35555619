//! Tests of PostgreSQL's query plans: the statements of each poll must not read more as the inbox grows.

use std::time::Instant;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row as _};
use uuid::Uuid;

use crate::store::{Consumers, RowKind};

use super::connection::Connection;
use super::handle::shared_text;
use super::limits::Use;
use super::{Postgres, claims_sql, consumers_sql, inbox_sql, prune};

/// Half of each million belongs to another consumer, which no worker serves at the moment.
const FILL: &str = "
    INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, run_at, state, envelope, payload)
    SELECT 1 + n % 4, int4send(n), '', now() + (n - 1000000) * interval '1 second', 'scheduled', '{}', ''
    FROM generate_series(1, 2000000) AS n";

/// The types of the values of a fetch.
const FETCH: &str = "(int[], bigint, uuid, float8[], bigint, float8, text[])";

/// A store in a new schema, and one of its connections.
struct World {
    store: Postgres,
    connection: Connection,
}

impl World {
    /// `None`, with a note on stderr, if no server is configured outside of CI.
    async fn make() -> Option<Self> {
        let Ok(url) = std::env::var("DATABASE_URL") else {
            assert!(std::env::var_os("CI").is_none(), "DATABASE_URL is not set, and this is CI");
            eprintln!("skipped: DATABASE_URL is not set, run cargo xtask test");
            return None;
        };
        let schema = format!("idem_test_{}", Uuid::new_v4().simple());
        let store = Postgres::options(&url).schema(&schema).connect().await.unwrap();
        let connection = store.0.pool.connection(Use::Own).await.unwrap();
        let mut world = Self { store, connection };
        world.run("SET statement_timeout = 0").await;
        // sqlx prepares its statements, and after some uses PostgreSQL plans them without looking at the values.
        world.run("SET plan_cache_mode = force_generic_plan").await;
        Some(world)
    }

    async fn run(&mut self, text: &str) {
        let text = self.store.text_with(text, &[]);
        self.connection.ready.conn.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    }

    async fn prepare(&mut self, name: &str, types: &str, statement: &str) {
        self.run(&format!("PREPARE {name}{types} AS {statement}")).await;
    }

    /// Returns how many buffers the execution touched, and which indexes it used.
    async fn execute(&mut self, call: &str) -> (u64, Vec<String>) {
        let text = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {call}");
        let row = self.connection.ready.conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
        let plan: Value = serde_json::from_str(&row.try_get_unchecked::<String, _>(0).unwrap()).unwrap();
        let plan = &plan[0]["Plan"];
        let count = |what: &str| plan[what].as_u64().unwrap();
        let mut indexes = Vec::new();
        walk(plan, &mut indexes);
        (count("Shared Hit Blocks") + count("Shared Read Blocks"), indexes)
    }

    async fn end(mut self) {
        self.run("DROP SCHEMA {schema} CASCADE").await;
    }
}

fn walk(plan: &Value, indexes: &mut Vec<String>) {
    // They have a row for each handler at most.
    let is_small = ["handlers", "call_namespaces"].iter().any(|table| plan["Relation Name"] == *table);
    assert!(plan["Node Type"] != "Seq Scan" || is_small, "a sequential scan of {}", plan["Relation Name"]);
    indexes.extend(plan["Index Name"].as_str().map(str::to_owned));
    plan["Plans"].as_array().into_iter().flatten().for_each(|plan| walk(plan, indexes));
}

#[tokio::test]
async fn a_fetch_reads_no_more_with_a_million_due_and_a_million_later_rows() {
    let Some(mut world) = World::make().await else { return };
    for (consumer, names) in [("billing", ["a", "b"]), ("shipping", ["c", "d"])] {
        Consumers::register(&world.store, consumer, &names).await.unwrap();
    }
    let begun = Instant::now();
    // The test is about plans, and writing WAL would take most of its time.
    world.run("ALTER TABLE {schema}.inbox_messages SET UNLOGGED").await;
    // Creating the indexes afterwards is faster than maintaining them; these plans do not use the unique one.
    let indexes = "SELECT indexdef, indexname FROM pg_indexes WHERE schemaname = $1 AND tablename = 'inbox_messages'
                   AND indexname IN ('inbox_messages_ordinary', 'inbox_messages_orphan', 'inbox_messages_dead')";
    let indexes = sqlx::query_as::<_, (String, String)>(indexes).bind(world.store.0.schema.clone());
    let indexes = indexes.fetch_all(&mut world.connection.ready.conn).await.unwrap();
    assert_eq!(indexes.len(), 3);
    let unique = "inbox_messages_handler_id_key_fingerprint_key";
    world.run(&format!("ALTER TABLE {{schema}}.inbox_messages DROP CONSTRAINT {unique}")).await;
    for (_, name) in &indexes {
        world.run(&format!("DROP INDEX {{schema}}.{name}")).await;
    }
    world.run(FILL).await;
    for (index, _) in indexes {
        world.run(&index).await;
    }
    world.run("ANALYZE {schema}.inbox_messages").await;
    println!("filled in {:?}", begun.elapsed());

    let ten = "('{1,2}', 10, gen_random_uuid(), '{10,20}', 1000000, 3.2e9, '{a,b}')";
    let statements = [
        ("ordinary", inbox_sql::fetch(RowKind::Ordinary), FETCH, ten, "ordinary"),
        ("orphan", inbox_sql::fetch(RowKind::Orphan), FETCH, ten, "orphan"),
        ("poll_due", inbox_sql::poll_due(), "(int[], float8, float8, float8)", "('{1,2}', 30, 3.2e9, 3.2e9)", "orphan"),
        ("dead_letter_crashed", inbox_sql::dead_letter_crashed(), "(int[], float8)", "('{1,2}', 30)", "orphan"),
        ("by_token", inbox_sql::rows_by_token(), "(uuid)", "(gen_random_uuid())", "orphan"),
        ("called", inbox_sql::rows_by_token(), "(uuid)", "(gen_random_uuid())", "calls"),
        ("calls", inbox_sql::fetch(RowKind::Calling), FETCH, ten, "calls"),
    ];
    for (name, statement, types, values, index) in statements {
        world.prepare(name, types, &statement).await;
        let (buffers, indexes) = world.execute(&format!("{name}{values}")).await;
        println!("{name}: {buffers} buffers by {indexes:?}");
        let index = format!("inbox_messages_{index}");
        assert!(indexes.contains(&index), "{name} does not use {index}: {indexes:?}");
        assert!(buffers < 1_000, "{name} reads {buffers} buffers");
    }
    world.end().await;
}

/// A table that is new, or was emptied, has no statistics; it can have a million claims before it gets some.
#[tokio::test]
async fn claims_of_many_use_the_index_of_a_table_without_statistics() {
    let Some(mut world) = World::make().await else { return };
    let claim = "(int[], bytea[], bytea[], bool, text, text, text)";
    let values = "('{1}', '{a}', '{b}', true, '1', '1', '1')";
    let statements = [
        ("alone", claims_sql::claim_uncontended(), claim, values),
        ("beside", claims_sql::claim_contended(), claim, values),
        ("known", claims_sql::existing_claims(false), "(int[], bytea[])", "('{1}', '{a}')"),
        ("locked", claims_sql::existing_claims(true), "(int[], bytea[])", "('{1}', '{a}')"),
    ];
    for (name, statement, types, values) in statements {
        world.prepare(name, types, &statement).await;
        world.run("BEGIN").await;
        let (_, mut indexes) = world.execute(&format!("{name}{values}")).await;
        indexes.retain(|index| index != "handlers_pkey");
        assert_eq!(indexes, ["processed_messages_pkey"], "{name}");
        world.run("ROLLBACK").await;
    }
    world.end().await;
}

/// Most consumers have handlers without claims: at least the one for messages without a handler.
#[tokio::test]
async fn the_handlers_are_known_without_reading_the_claims() {
    let Some(mut world) = World::make().await else { return };
    Consumers::register(&world.store, "billing", &["", "a", "b"]).await.unwrap();
    let fill = "INSERT INTO {schema}.processed_messages (handler_id, key, fingerprint, processed_at)
                SELECT id, int4send(n), '', now() FROM {schema}.handlers, generate_series(1, 200000) AS n WHERE name = 'b';
                ANALYZE {schema}.processed_messages, {schema}.handlers";
    world.run(fill).await;
    world.prepare("handlers", "(text)", consumers_sql::KNOWN).await;
    for asked in ["'billing'", "NULL"] {
        let (buffers, _) = world.execute(&format!("handlers({asked})")).await;
        assert!(buffers < 200, "{asked}: it reads {buffers} buffers");
    }
    world.end().await;
}

/// However many dead letters there are, and whatever the statistics of the table say.
#[tokio::test]
async fn an_operator_finds_rows_and_their_claims_by_their_keys() {
    let Some(mut world) = World::make().await else { return };
    Consumers::register(&world.store, "billing", &["a", "b"]).await.unwrap();
    let fill = "
        ALTER TABLE {schema}.inbox_messages SET UNLOGGED;
        ALTER TABLE {schema}.processed_messages SET UNLOGGED;
        INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, state, reason, died_at, envelope, payload)
        SELECT h.id, int4send(n), '', 'dead', 'exhausted', now(), '{}', ''
        FROM {schema}.handlers AS h, generate_series(1, 50000) AS n;
        INSERT INTO {schema}.processed_messages (handler_id, key, fingerprint)
        SELECT handler_id, key, '' FROM {schema}.inbox_messages";
    world.run(fill).await;
    let ids = (1..=500).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    for analyzed in [false, true] {
        if analyzed {
            world.run("ANALYZE {schema}.inbox_messages, {schema}.processed_messages").await;
        }
        let of = "'billing', gen_random_uuid(), 'done', 'anna'";
        for (name, statement, types, values) in [
            ("replay", consumers_sql::replay(), "boolean, boolean", "false, false"),
            ("replay_as", consumers_sql::replay_as(), "bytea", "'a'"),
            ("resolve", consumers_sql::resolve(), "uuid, bytea, uuid", "gen_random_uuid(), NULL, gen_random_uuid()"),
            ("discard", consumers_sql::discard(), "uuid", "NULL"),
        ] {
            let name = format!("{name}_{analyzed}");
            let types = format!("(bigint[], text, uuid, text, text, {types})");
            world.prepare(&name, &types, &shared_text(&statement)).await;
            world.run("BEGIN").await;
            let (_, indexes) = world.execute(&format!("{name}('{{{ids}}}', {of}, {values})")).await;
            println!("{name}: {indexes:?}");
            assert!(indexes.iter().any(|index| index == "inbox_messages_pkey"), "{name}: {indexes:?}");
            world.run("ROLLBACK").await;
        }
        let name = format!("rows_{analyzed}");
        world.prepare(&name, "(bigint[])", &consumers_sql::rows()).await;
        let (buffers, _) = world.execute(&format!("{name}('{{{ids}}}')")).await;
        assert!(buffers < 5_000, "it reads {buffers} buffers for 500 rows");
    }
    world.end().await;
}

/// Whatever the statistics say, and however many inbox rows there are.
#[tokio::test]
async fn a_step_of_prune_reads_its_blocks_and_the_rows_beside_old_claims() {
    let Some(mut world) = World::make().await else { return };
    Consumers::register(&world.store, "billing", &["long", "short"]).await.unwrap();
    let fill = "UPDATE {schema}.handlers SET retention = CASE name WHEN 'long' THEN interval '720 hours'
                                                                  ELSE interval '1 second' END;
                ALTER TABLE {schema}.processed_messages SET UNLOGGED;
                ALTER TABLE {schema}.inbox_messages SET UNLOGGED;
                INSERT INTO {schema}.processed_messages (handler_id, key, fingerprint, processed_at)
                SELECT CASE WHEN n % 50 > 0 THEN 1 ELSE 2 END, int4send(n), '', now() - n * interval '0.1 second'
                FROM generate_series(1, 1000000) AS n";
    world.run(fill).await;
    for analyzed in [false, true] {
        world.run("TRUNCATE {schema}.inbox_messages").await;
        if analyzed {
            world.run("ANALYZE {schema}.processed_messages, {schema}.inbox_messages").await;
        }
        let find = format!("find_{analyzed}");
        world.prepare(&find, "(bigint, bigint, float8, float8)", prune::FIND).await;
        let begin = format!("BEGIN; {}", prune::PLANNER);
        // Planned while the inbox is empty, as in a service that had no failure yet.
        world.run(&format!("{begin}; EXECUTE {find}(0, 1, 0, 1); ROLLBACK")).await;
        let inbox = "INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, state, envelope, payload)
                     SELECT 1, int4send(-n), '', 'scheduled', '{}', '' FROM generate_series(1, 20000) AS n";
        world.run(inbox).await;
        world.run(&begin).await;
        let compiles: String =
            sqlx::query_scalar("SHOW jit").fetch_one(&mut world.connection.ready.conn).await.unwrap();
        assert_eq!(compiles, "off", "a step would take longer to compile than to run");
        let (buffers, indexes) = world.execute(&format!("{find}(2000, 2064, 0, 1)")).await;
        println!("{buffers} buffers by {indexes:?}");
        assert!(!indexes.iter().any(|used| used == "processed_messages_pkey"), "{indexes:?}");
        // Of the 8,000 claims or so, each reads the retention of its handler, and the old ones look for an inbox row.
        assert!(buffers < 30_000, "it reads {buffers} buffers");
        // No claim is older than 30 days.
        let (buffers, _) = world.execute(&format!("{find}(2000, 2064, 0, 2592000)")).await;
        assert!(buffers < 1_000, "it reads {buffers} buffers, also for claims that are younger than each retention");
        world.run("ROLLBACK").await;
    }
    world.end().await;
}

/// A report that runs for ten minutes keeps an index entry for each row that was fetched meanwhile. A query that does not
/// look back beyond the last one steps over none of them.
#[tokio::test]
async fn a_bounded_search_reads_no_more_under_an_old_snapshot() {
    let Some(mut world) = World::make().await else { return };
    Consumers::register(&world.store, "billing", &["a", "b"]).await.unwrap();
    let url = std::env::var("DATABASE_URL").unwrap();
    let mut report = <PgConnection as sqlx::Connection>::connect(&url).await.unwrap();
    let fetched = "
        ALTER TABLE {schema}.inbox_messages SET UNLOGGED, SET (autovacuum_enabled = off);
        INSERT INTO {schema}.inbox_messages
            (handler_id, key, fingerprint, run_at, crash_count, state, envelope, payload, provider_key)
        SELECT 1 + n % 2, int4send(n), '', now() - n * interval '1 millisecond' - interval '120 second', greatest(n / 2 % 3 - 1, 0),
               CASE n / 2 % 3 WHEN 0 THEN 'calling' ELSE 'scheduled' END, '{}', '', gen_random_uuid()
        FROM generate_series(1, 60000) AS n";
    world.run(fetched).await;
    let open = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM {schema}.inbox_messages";
    let open = world.store.text_with(open, &[]);
    report.execute(sqlx::raw_sql(AssertSqlSafe(open))).await.unwrap();
    let due = "
        DELETE FROM {schema}.inbox_messages;
        INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, state, envelope, payload)
        SELECT 1, int4send(n), '', 'scheduled', '{}', '' FROM generate_series(1, 10) AS n;
        ANALYZE {schema}.inbox_messages";
    world.run(due).await;

    let some = "('{1,2}', 5, gen_random_uuid(), '{10,20}', 1000000, BACK, '{a,b}')";
    let statements = [
        ("poll_due", inbox_sql::poll_due(), "(int[], float8, float8, float8)", "('{1,2}', 30, BACK, BACK)"),
        ("ordinary", inbox_sql::fetch(RowKind::Ordinary), FETCH, some),
        ("orphan", inbox_sql::fetch(RowKind::Orphan), FETCH, some),
        ("calls", inbox_sql::fetch(RowKind::Calling), FETCH, some),
    ];
    for (name, statement, types, values) in statements {
        world.prepare(name, types, &statement).await;
        let mut buffers = Vec::new();
        for back in ["20", "3.2e9"] {
            buffers.push(world.execute(&format!("{name}{}", values.replace("BACK", back))).await.0);
        }
        println!("{name}: {buffers:?} buffers, bounded and not");
        assert!(buffers[0] < 200, "{name} reads {buffers:?} buffers");
        assert!(buffers[1] > 5 * buffers[0], "{name} finds no dead rows to step over: {buffers:?} buffers");
    }
    drop(report);
    world.end().await;
}
