//! Tests of PostgreSQL's query plans: the statements of each poll must not read more as the inbox grows.

use std::time::Instant;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row as _};
use uuid::Uuid;

use crate::store::Claims;

use super::statement::quoted;
use super::{Postgres, calls_sql, inbox_sql, many_sql, prune_sql};

/// Half of each million belongs to another consumer, which no worker serves at the moment.
const FILL: &str = "
    INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, run_at, state, envelope, payload)
    SELECT 1 + n % 4, int4send(n), '', now() + (n - 1000000) * interval '1 second', 'scheduled', '{}', ''
    FROM generate_series(1, 2000000) AS n";

/// Returns how many buffers the statement touched, and which indexes it used.
async fn explain(conn: &mut PgConnection, statement: &str) -> (u64, Vec<String>) {
    let text = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}");
    let row = conn.fetch_one(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    let plan: Value = serde_json::from_str(&row.try_get_unchecked::<String, _>(0).unwrap()).unwrap();
    let plan = &plan[0]["Plan"];
    let count = |what: &str| plan[what].as_u64().unwrap();
    let mut indexes = Vec::new();
    walk(plan, &mut indexes);
    (count("Shared Hit Blocks") + count("Shared Read Blocks"), indexes)
}

fn walk(plan: &Value, indexes: &mut Vec<String>) {
    assert!(
        plan["Node Type"] != "Seq Scan" || plan["Relation Name"] == "handlers",
        "a sequential scan of {}",
        plan["Relation Name"]
    );
    indexes.extend(plan["Index Name"].as_str().map(str::to_owned));
    plan["Plans"].as_array().into_iter().flatten().for_each(|plan| walk(plan, indexes));
}

/// Returns a store in a new schema; `None`, with a note on stderr, if no server is configured outside of CI.
async fn world() -> Option<(Postgres, String)> {
    let Ok(url) = std::env::var("DATABASE_URL") else {
        assert!(std::env::var_os("CI").is_none(), "DATABASE_URL is not set, and this is CI");
        eprintln!("skipped: DATABASE_URL is not set, run cargo xtask test");
        return None;
    };
    let schema = format!("idem_test_{}", Uuid::new_v4().simple());
    let store = Postgres::options(&url).schema(&schema).connect().await.unwrap();
    Some((store, schema))
}

#[tokio::test]
async fn a_take_reads_no_more_with_a_million_due_and_a_million_later_rows() {
    let Some((store, schema)) = world().await else { return };
    for (consumer, names) in [("billing", ["a", "b"]), ("shipping", ["c", "d"])] {
        Claims::register(&store, consumer, &names).await.unwrap();
    }
    let mut connection = store.pool().own().await.unwrap();
    let conn = connection.raw();
    let begun = Instant::now();
    let in_schema = |text: &str| AssertSqlSafe(text.replace("{schema}", &quoted(&schema)));
    conn.execute("SET statement_timeout = 0").await.unwrap();
    // The test is about plans, and writing WAL would take most of its time.
    conn.execute(sqlx::raw_sql(in_schema("ALTER TABLE {schema}.inbox_messages SET UNLOGGED"))).await.unwrap();
    // Creating the indexes afterwards is faster than maintaining them; these plans do not use the unique one.
    let indexes = "SELECT indexdef, indexname FROM pg_indexes WHERE schemaname = $1 AND tablename = 'inbox_messages'
                   AND indexname IN ('inbox_messages_ordinary', 'inbox_messages_suspect', 'inbox_messages_dead')";
    let indexes = sqlx::query_as::<_, (String, String)>(indexes).bind(&schema).fetch_all(&mut *conn).await.unwrap();
    assert_eq!(indexes.len(), 3);
    let unique = "inbox_messages_handler_id_key_fingerprint_key";
    conn.execute(sqlx::raw_sql(in_schema(&format!("ALTER TABLE {{schema}}.inbox_messages DROP CONSTRAINT {unique}"))))
        .await
        .unwrap();
    for (_, name) in &indexes {
        conn.execute(sqlx::raw_sql(in_schema(&format!("DROP INDEX {{schema}}.{name}")))).await.unwrap();
    }
    conn.execute(sqlx::raw_sql(in_schema(FILL))).await.unwrap();
    for (index, _) in indexes {
        conn.execute(sqlx::raw_sql(AssertSqlSafe(index))).await.unwrap();
    }
    conn.execute(sqlx::raw_sql(in_schema("ANALYZE {schema}.inbox_messages"))).await.unwrap();
    // sqlx prepares its statements, and after some uses PostgreSQL plans them without looking at the values.
    conn.execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    println!("filled in {:?}", begun.elapsed());

    let statements = [
        (
            "ordinary",
            inbox_sql::take(inbox_sql::ORDINARY),
            "(int[], bigint, uuid, float8, bigint, float8)",
            "('{1,2}', 10, gen_random_uuid(), 10, 1000000, 3.2e9)",
        ),
        (
            "suspect",
            inbox_sql::take(inbox_sql::SUSPECT),
            "(int[], bigint, uuid, float8, bigint, float8)",
            "('{1,2}', 1, gen_random_uuid(), 10, 1000000, 3.2e9)",
        ),
        ("poll_due", inbox_sql::poll_due(), "(int[], float8, float8, float8)", "('{1,2}', 30, 3.2e9, 3.2e9)"),
        ("dead_letter_crashed", inbox_sql::dead_letter_crashed(), "(int[], float8)", "('{1,2}', 30)"),
        ("taken", inbox_sql::rows_by_token(), "(uuid)", "(gen_random_uuid())"),
        (
            "calls",
            calls_sql::take(),
            "(int[], bigint, uuid, float8[], text[], float8)",
            "('{1,2}', 10, gen_random_uuid(), '{30,30}', '{a,b}', 3.2e9)",
        ),
        ("called", calls_sql::by_token(), "(uuid)", "(gen_random_uuid())"),
    ];
    for (name, statement, types, values) in statements {
        conn.execute(sqlx::raw_sql(in_schema(&format!("PREPARE {name}{types} AS {statement}")))).await.unwrap();
        let (buffers, indexes) = explain(conn, &format!("EXECUTE {name}{values}")).await;
        println!("{name}: {buffers} buffers by {indexes:?}");
        let index = match name {
            "ordinary" => "inbox_messages_ordinary",
            "calls" | "called" => "inbox_messages_calls",
            _ => "inbox_messages_suspect",
        };
        assert!(indexes.iter().any(|used| used == index), "{name} does not use {index}: {indexes:?}");
        assert!(buffers < 1_000, "{name} reads {buffers} buffers");
    }
    conn.execute(sqlx::raw_sql(in_schema("DROP SCHEMA {schema} CASCADE"))).await.unwrap();
}

/// A table that is new, or was emptied, has no statistics; it can have a million claims before it gets some.
#[tokio::test]
async fn claims_of_many_use_the_index_of_a_table_without_statistics() {
    let Some((store, schema)) = world().await else { return };
    let mut connection = store.pool().own().await.unwrap();
    let conn = connection.raw();
    let in_schema = |text: &str| AssertSqlSafe(text.replace("{schema}", &quoted(&schema)));
    conn.execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    let (claim, values) = (
        "(int[], bytea[], bytea[], bool, text, text, text, int[])",
        "('{1}', '{a}', '{b}', true, '1', '1', '1', '{1}')",
    );
    let statements = [
        ("alone", many_sql::claim_uncontended(), claim, values),
        ("beside", many_sql::claim_contended(), claim, values),
        ("known", many_sql::unlocked_claims(), "(int[], bytea[])", "('{1}', '{a}')"),
    ];
    for (name, statement, types, values) in statements {
        conn.execute(sqlx::raw_sql(in_schema(&format!("PREPARE {name}{types} AS {statement}")))).await.unwrap();
        conn.execute("BEGIN").await.unwrap();
        let (_, mut indexes) = explain(conn, &format!("EXECUTE {name}{values}")).await;
        indexes.retain(|index| index != "handlers_pkey");
        assert_eq!(indexes, ["processed_messages_pkey"], "{name}");
        conn.execute("ROLLBACK").await.unwrap();
    }
    conn.execute(sqlx::raw_sql(in_schema("DROP SCHEMA {schema} CASCADE"))).await.unwrap();
}

/// Whatever the statistics say, and however many inbox rows there are.
#[tokio::test]
async fn a_step_of_prune_reads_its_blocks_and_the_rows_beside_old_claims() {
    let Some((store, schema)) = world().await else { return };
    Claims::register(&store, "billing", &["long", "short"]).await.unwrap();
    let mut connection = store.pool().own().await.unwrap();
    let conn = connection.raw();
    let in_schema = |text: &str| AssertSqlSafe(text.replace("{schema}", &quoted(&schema)));
    conn.execute("SET statement_timeout = 0").await.unwrap();
    let fill = "UPDATE {schema}.handlers SET retention = CASE name WHEN 'long' THEN interval '720 hours'
                                                                  ELSE interval '1 second' END;
                ALTER TABLE {schema}.processed_messages SET UNLOGGED;
                ALTER TABLE {schema}.inbox_messages SET UNLOGGED;
                INSERT INTO {schema}.processed_messages (handler_id, key, fingerprint, processed_at)
                SELECT CASE WHEN n % 50 > 0 THEN 1 ELSE 2 END, int4send(n), '', now() - n * interval '0.1 second'
                FROM generate_series(1, 1000000) AS n";
    conn.execute(sqlx::raw_sql(in_schema(fill))).await.unwrap();
    conn.execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    for analyzed in [false, true] {
        conn.execute(sqlx::raw_sql(in_schema("TRUNCATE {schema}.inbox_messages"))).await.unwrap();
        if analyzed {
            let analyze = "ANALYZE {schema}.processed_messages, {schema}.inbox_messages";
            conn.execute(sqlx::raw_sql(in_schema(analyze))).await.unwrap();
        }
        let prepare = format!("PREPARE find_{analyzed} (bigint, bigint, float8) AS {}", prune_sql::FIND);
        conn.execute(sqlx::raw_sql(in_schema(&prepare))).await.unwrap();
        let begin = format!("BEGIN; {}", prune_sql::PLANNER);
        // Planned while the inbox is empty, as in a service that had no failure yet.
        let planned = format!("{begin}; EXECUTE find_{analyzed}(0, 1, 0); ROLLBACK");
        conn.execute(sqlx::raw_sql(AssertSqlSafe(planned))).await.unwrap();
        let inbox = "INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, state, envelope, payload)
                     SELECT 1, int4send(-n), '', 'scheduled', '{}', '' FROM generate_series(1, 20000) AS n";
        conn.execute(sqlx::raw_sql(in_schema(inbox))).await.unwrap();
        conn.execute(sqlx::raw_sql(AssertSqlSafe(begin))).await.unwrap();
        let compiles: String = sqlx::query_scalar("SHOW jit").fetch_one(&mut *conn).await.unwrap();
        assert_eq!(compiles, "off", "a step would take longer to compile than to run");
        let (buffers, indexes) = explain(conn, &format!("EXECUTE find_{analyzed}(2000, 2064, 0)")).await;
        println!("{buffers} buffers by {indexes:?}");
        assert!(!indexes.iter().any(|used| used == "processed_messages_pkey"), "{indexes:?}");
        // Of the 8,000 claims or so, each reads the retention of its handler, and the old ones look for an inbox row.
        assert!(buffers < 30_000, "it reads {buffers} buffers");
        conn.execute("ROLLBACK").await.unwrap();
    }
    conn.execute(sqlx::raw_sql(in_schema("DROP SCHEMA {schema} CASCADE"))).await.unwrap();
}

/// A report that runs for ten minutes keeps an index entry for each row that was taken meanwhile. A query that does not
/// look back beyond the last one steps over none of them.
#[tokio::test]
async fn a_bounded_look_reads_no_more_under_an_old_snapshot() {
    let Some((store, schema)) = world().await else { return };
    Claims::register(&store, "billing", &["a", "b"]).await.unwrap();
    let mut connection = store.pool().own().await.unwrap();
    let conn = connection.raw();
    let in_schema = |text: &str| AssertSqlSafe(text.replace("{schema}", &quoted(&schema)));
    let url = std::env::var("DATABASE_URL").unwrap();
    let mut report = <PgConnection as sqlx::Connection>::connect(&url).await.unwrap();
    let taken = "
        SET statement_timeout = 0;
        ALTER TABLE {schema}.inbox_messages SET UNLOGGED, SET (autovacuum_enabled = off);
        INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, run_at, crash_count, state, envelope, payload)
        SELECT 1 + n % 2, int4send(n), '', now() - n * interval '1 millisecond' - interval '120 second', greatest(n / 2 % 3 - 1, 0),
               CASE n / 2 % 3 WHEN 0 THEN 'calling' ELSE 'scheduled' END, '{}', ''
        FROM generate_series(1, 60000) AS n";
    conn.execute(sqlx::raw_sql(in_schema(taken))).await.unwrap();
    let open = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM {schema}.inbox_messages";
    report.execute(sqlx::raw_sql(in_schema(open))).await.unwrap();
    let due = "
        DELETE FROM {schema}.inbox_messages;
        INSERT INTO {schema}.inbox_messages (handler_id, key, fingerprint, state, envelope, payload)
        SELECT 1, int4send(n), '', 'scheduled', '{}', '' FROM generate_series(1, 10) AS n;
        ANALYZE {schema}.inbox_messages; SET plan_cache_mode = force_generic_plan";
    conn.execute(sqlx::raw_sql(in_schema(due))).await.unwrap();

    let take = "(int[], bigint, uuid, float8, bigint, float8)";
    let statements = [
        ("poll_due", inbox_sql::poll_due(), "(int[], float8, float8, float8)", "('{1,2}', 30, BACK, BACK)"),
        ("ordinary", inbox_sql::take(inbox_sql::ORDINARY), take, "('{1,2}', 5, gen_random_uuid(), 10, 1000000, BACK)"),
        ("suspect", inbox_sql::take(inbox_sql::SUSPECT), take, "('{1,2}', 1, gen_random_uuid(), 10, 1000000, BACK)"),
        (
            "calls",
            calls_sql::take(),
            "(int[], bigint, uuid, float8[], text[], float8)",
            "('{1,2}', 10, gen_random_uuid(), '{30,30}', '{a,b}', BACK)",
        ),
    ];
    for (name, statement, types, values) in statements {
        conn.execute(sqlx::raw_sql(in_schema(&format!("PREPARE {name}{types} AS {statement}")))).await.unwrap();
        let mut buffers = Vec::new();
        for back in ["20", "3.2e9"] {
            buffers.push(explain(conn, &format!("EXECUTE {name}{}", values.replace("BACK", back))).await.0);
        }
        println!("{name}: {buffers:?} buffers, bounded and not");
        assert!(buffers[0] < 200, "{name} reads {buffers:?} buffers");
        assert!(buffers[1] > 5 * buffers[0], "{name} finds no dead rows to step over: {buffers:?} buffers");
    }
    drop(report);
    conn.execute(sqlx::raw_sql(in_schema("DROP SCHEMA {schema} CASCADE"))).await.unwrap();
}
