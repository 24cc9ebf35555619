//! Tests of SQLite's query plans: the statements of each poll must not read more as the inbox grows.

use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::sql::filled;
use super::{claims, consumers_sql, inbox_sql, migrate, prune, replies};
use crate::operator::Filter;
use crate::store::RowKind;
use crate::store::sql::statements;

/// A database with empty tables.
async fn tables() -> SqliteConnection {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    for migration in migrate::MIGRATIONS {
        sqlx::raw_sql(migration.sql).execute(&mut connection).await.unwrap();
    }
    connection
}

/// Returns the plan of a statement, one line per step.
async fn plan(text: &str) -> String {
    planned(&mut tables().await, text).await
}

async fn planned(connection: &mut SqliteConnection, text: &str) -> String {
    let steps = sqlx::query(filled(&format!("EXPLAIN QUERY PLAN {text}"))).fetch_all(connection).await.unwrap();
    steps.iter().map(|step| step.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
}

/// Asserts that only the list of handlers is scanned.
fn reads_no_table(plan: &str) {
    for scan in plan.lines().filter(|line| line.starts_with("SCAN")) {
        assert!(
            ["SCAN CONSTANT ROW", "SCAN h", "SCAN json_each", "SCAN (subquery", "SCAN found", "SCAN due"]
                .iter()
                .any(|list| scan.starts_with(list)),
            "{plan}"
        );
    }
}

#[tokio::test]
async fn a_fetch_reads_for_each_handler_the_earliest_rows_from_an_index_and_sorts_no_more_than_these() {
    let (runs, orphan) = ([(RowKind::Ordinary, "ordinary"), (RowKind::Calling, "calls")], "orphan");
    for (kind, index) in runs.into_iter().chain([(RowKind::Orphan, orphan), (RowKind::Alone, orphan)]) {
        let plan = plan(&inbox_sql::fetch(kind)).await;
        reads_no_table(&plan);
        let inner = format!("SEARCH f USING INDEX idem_inbox_messages_{index} (handler_id=? AND <expr><?)");
        let inner = plan.replace("COVERING INDEX", "INDEX").find(&inner).unwrap_or_else(|| panic!("{plan}"));
        let sort = plan.find("USE TEMP B-TREE FOR ORDER BY").unwrap_or(usize::MAX);
        assert!(inner < sort && plan.matches("TEMP B-TREE").count() <= 1, "{plan}");
    }
}

/// The inbox is nearly empty most of the time, so these are the statistics of a daily `ANALYZE`.
#[tokio::test]
async fn a_fetch_reads_no_table_that_had_few_rows_when_it_was_analyzed() {
    let mut connection = tables().await;
    let few = r#"
        INSERT INTO "idem_inbox_messages"
            (created_at, run_at, handler_id, key, fingerprint, state, provider_key, envelope, payload)
        SELECT 0, 0, 1, CAST(value AS BLOB), x'', CASE value % 2 WHEN 0 THEN 'calling' ELSE 'scheduled' END, x'', x'', x''
        FROM json_each('[1, 2, 3, 4, 5]');
        ANALYZE"#;
    sqlx::raw_sql(few).execute(&mut connection).await.unwrap();
    for kind in [RowKind::Ordinary, RowKind::Orphan, RowKind::Alone, RowKind::Calling] {
        reads_no_table(&planned(&mut connection, &inbox_sql::fetch(kind)).await);
    }
}

#[tokio::test]
async fn calls_that_are_due_are_found_in_their_index() {
    let plan = plan(&format!("SELECT {}", inbox_sql::has(inbox_sql::CALLING))).await;
    reads_no_table(&plan);
    assert!(plan.contains("messages_calls (handler_id=? AND <expr><?)") && !plan.contains("TEMP B-TREE"), "{plan}");
}

#[tokio::test]
async fn a_poll_and_dead_lettering_read_indexes_only() {
    let due = plan(&inbox_sql::poll_due()).await;
    reads_no_table(&due);
    assert!(due.contains("messages_ordinary (handler_id=? AND <expr><?)"), "{due}");
    assert_eq!(due.matches("messages_orphan (handler_id=? AND <expr><?)").count(), 3, "{due}");
    let crashed = plan(inbox_sql::DEAD_LETTER_CRASHED).await;
    reads_no_table(&crashed);
    assert!(crashed.contains("messages_orphan (handler_id=? AND <expr><?)"), "{crashed}");
}

#[tokio::test]
async fn statements_for_each_message_scan_no_table() {
    for text in [
        claims::CLAIM,
        claims::EXISTING_CLAIM,
        inbox_sql::REMOVE,
        inbox_sql::ROWS_BY_TOKEN,
        statements::RECORD_RESULT,
        statements::RECORD_CALL,
        prune::DELETE,
        prune::REPLIES,
        replies::FIND,
    ] {
        reads_no_table(&plan(text).await);
    }
}

#[tokio::test]
async fn prune_walks_by_the_primary_key() {
    let end = plan(prune::END).await;
    assert!(end.contains("processed_messages USING PRIMARY KEY ((handler_id,key)>(?,?))"), "{end}");
    assert!(!end.contains("TEMP B-TREE"), "{end}");
    let delete = plan(prune::DELETE).await;
    assert!(
        delete.contains("SEARCH c USING PRIMARY KEY ((handler_id,key)>(?,?) AND (handler_id,key)<(?,?))"),
        "{delete}"
    );
}

#[tokio::test]
async fn stats_are_counted_in_indexes() {
    let plan = plan(consumers_sql::STATS).await;
    for index in ["ordinary (handler_id=?)", "orphan (handler_id=?)", "calls (handler_id=?)", "dead (handler_id=?)"] {
        assert!(plan.contains(&format!("COVERING INDEX idem_inbox_messages_{index}")), "{index}: {plan}");
    }
    let rows = plan.lines().filter(|line| line.contains("idem_inbox_messages") && !line.contains("COVERING"));
    assert_eq!(rows.collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn an_operator_finds_his_rows_and_their_claims_by_their_keys() {
    let changes = [consumers_sql::replay(), consumers_sql::replay_as(), consumers_sql::resolve()].concat();
    for text in changes.iter().chain(&consumers_sql::discard()).chain(&[consumers_sql::claim(), consumers_sql::left()])
    {
        let plan = plan(text).await;
        reads_no_table(&plan);
        assert!(plan.contains("SEARCH i USING INTEGER PRIMARY KEY (rowid=?)"), "{text}: {plan}");
    }
    let date = plan(&consumers_sql::discard()[1]).await;
    assert!(date.contains("SEARCH c USING PRIMARY KEY (handler_id=? AND key=?)"), "{date}");
}

#[tokio::test]
async fn old_operations_are_found_among_the_oldest() {
    let plan = plan(statements::PRUNED[0].0).await;
    assert!(plan.contains("SEARCH idem_operations USING INTEGER PRIMARY KEY (rowid=?)"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

/// Also of a handler with a million dead letters: their index has no keys.
#[tokio::test]
async fn dead_letters_of_a_key_are_found_by_the_key() {
    let (question, _) = Filter::new().key("a").ask_ids("[1]", i64::MAX, 100, None);
    let plan = plan(&question.sqlite).await;
    let by_key = "SEARCH i USING INDEX sqlite_autoindex_idem_inbox_messages_1 (handler_id=? AND key=?)";
    assert!(plan.contains(by_key), "{plan}");
}
