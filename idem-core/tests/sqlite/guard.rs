//! The guard detects a handler that ends its transaction.

use futures_util::FutureExt;
use idem_core::store::{CommitResult, Transactions};
use sqlx::Connection;

use crate::world::{World, lent, run};

/// A handler that runs these statements, ignores their results, and returns `Ok`.
async fn abuse(world: &World, statements: &[&'static str]) -> CommitResult {
    let mut txn = world.claimed("k").await;
    for statement in statements {
        let _ = run(&mut txn, statement).await;
    }
    let committed = world.store.commit(txn).await;
    // Whatever it did to its connection, the next message is processed normally.
    world.process("next").await;
    committed
}

#[tokio::test]
async fn commit_by_the_handler_is_refused_and_nothing_of_it_stands() {
    let world = World::new().await;
    let statements = ["INSERT INTO effects VALUES (1)", "COMMIT", "INSERT INTO effects VALUES (2)"];
    assert!(matches!(abuse(&world, &statements).await, CommitResult::CommitRefused));
    assert_eq!((world.dated("k").await, world.count("effects").await), (None, 0));
}

/// The connection's thread runs it before or behind the point from which idem's own COMMIT is allowed.
#[tokio::test]
async fn a_commit_that_the_handler_does_not_await_is_found() {
    for round in 0..50 {
        let world = World::new().await;
        let mut txn = world.claimed("k").await;
        run(&mut txn, "INSERT INTO effects VALUES (1)").await.unwrap();
        let _ = run(&mut txn, "COMMIT").now_or_never();
        match world.store.commit(txn).await {
            CommitResult::CommitRefused => {
                assert_eq!((world.dated("k").await, world.count("effects").await), (None, 0), "{round}");
            }
            CommitResult::CommittedEarly(_) => {
                assert_eq!((world.dated("k").await, world.count("effects").await), (Some(true), 1), "{round}");
            }
            other => panic!("{round}: {other:?}"),
        }
        world.process("next").await;
    }
}

/// A handler that writes 1, sends this end of its transaction and an INSERT of 2 without awaiting them, and returns `Ok`.
async fn send_unawaited(world: &World, end: &'static str) -> CommitResult {
    let mut txn = world.claimed("k").await;
    run(&mut txn, "INSERT INTO effects VALUES (1)").await.unwrap();
    // In a command each: the connection's thread leaves a command at the first answer that nobody receives.
    for statement in [LENGTHY, end, "INSERT INTO effects VALUES (2)"] {
        let _ = run(&mut txn, statement).now_or_never();
    }
    let committed = world.store.commit(txn).await;
    world.process("next").await;
    committed
}

#[tokio::test]
async fn nothing_stands_behind_a_rollback_that_the_handler_does_not_await() {
    let world = World::new().await;
    assert!(matches!(send_unawaited(&world, "ROLLBACK").await, CommitResult::RolledBack));
    assert_eq!((world.dated("k").await, world.count("effects").await), (None, 0));
}

#[tokio::test]
async fn nothing_stands_that_is_sent_behind_a_commit_which_the_handler_does_not_await() {
    let world = World::new().await;
    match send_unawaited(&world, "COMMIT").await {
        CommitResult::CommittedEarly(_) => {
            assert_eq!((world.dated("k").await, world.count("effects").await), (Some(true), 1));
        }
        // This task was stopped for so long that idem's COMMIT was not allowed yet.
        CommitResult::CommitRefused => {
            assert_eq!((world.dated("k").await, world.count("effects").await), (None, 0));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_swallowed_insert_or_rollback_is_found_and_what_the_handler_wrote_after_it_does_not_stand() {
    let world = World::new().await;
    let statements = [
        "INSERT INTO effects VALUES (1)",
        "INSERT OR ROLLBACK INTO effects VALUES (1)",
        "INSERT INTO effects VALUES (2)",
    ];
    assert!(matches!(abuse(&world, &statements).await, CommitResult::RolledBack));
    assert_eq!((world.dated("k").await, world.count("effects").await), (None, 0));
}

#[tokio::test]
async fn a_swallowed_full_database_leaves_the_transaction_whole() {
    let world = World::new().await;
    let mut txn = world.claimed("k").await;
    run(&mut txn, "INSERT INTO effects VALUES (1); PRAGMA max_page_count = 1").await.unwrap();
    let fill = "CREATE TABLE large AS SELECT zeroblob(10000000)";
    assert!(run(&mut txn, fill).await.unwrap_err().to_string().contains("full"));
    run(&mut txn, "INSERT INTO effects VALUES (2)").await.unwrap();
    assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
    assert_eq!((world.dated("k").await, world.count("effects").await), (Some(true), 2));
}

#[tokio::test]
async fn a_begin_with_which_makes_sqlx_roll_back_is_found() {
    let world = World::new().await;
    let mut txn = world.claimed("k").await;
    assert!(lent(&mut txn).begin_with("BEGIN IMMEDIATE").await.is_err());
    assert!(matches!(world.store.commit(txn).await, CommitResult::Refused(_)));
    world.process("k").await;
}

#[tokio::test]
async fn a_copy_that_another_process_took_over_after_the_rollback_is_not_taken_for_our_commit() {
    let world = World::new().await;
    let mut txn = world.claimed("k").await;
    run(&mut txn, "ROLLBACK").await.unwrap();
    sqlx::query("INSERT INTO idem_processed_messages VALUES (?1, CAST('k' AS BLOB), x'', 1)")
        .bind(world.handler.0)
        .execute(&mut world.outsider().await)
        .await
        .unwrap();
    assert!(matches!(world.store.commit(txn).await, CommitResult::RolledBack));
}

/// Takes the connection's thread much longer than this task takes to send what follows, up to idem's COMMIT.
const LENGTHY: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT count(*) FROM n";

/// Runs for hours.
pub(crate) const ENDLESS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0";
