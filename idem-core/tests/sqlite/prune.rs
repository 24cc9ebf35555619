//! Removing old claims, in chunks, concurrently with new claims.

use std::time::Duration;

use idem_core::Reason;
use idem_core::store::{CommitResult, Consumers, Transactions};

use crate::world::World;

/// Inserts claims older than the retention of an hour, one millisecond apart.
async fn old_claims(world: &World, count: u32) {
    world
        .sql(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
             INSERT INTO idem_processed_messages SELECT {}, CAST('old' || i AS BLOB), x'', i FROM n",
            world.handler.0
        ))
        .await;
}

async fn world() -> World {
    World::with(|options| options.retention(Duration::from_secs(3600))).await
}

/// The share of a call is half of the table: a round takes a thirtieth of the retention, which is two minutes.
#[tokio::test]
async fn a_large_table_is_walked_in_shares_and_then_from_the_beginning_again() {
    let world = world().await;
    old_claims(&world, 300_000).await;
    // Two are old, the first and the last one in the order of the keys, which are hashes.
    let young = "UPDATE idem_processed_messages SET key = CAST(printf('%06d', processed_at) AS BLOB),
                 processed_at = CASE WHEN processed_at IN (1, 300000) THEN processed_at ELSE unixepoch() * 1000 END";
    world.sql(young).await;
    let place = "UPDATE idem_pruner SET key = CAST('000100' AS BLOB), walked = 100, size = 300000, handler_id =";
    world.sql(&format!("{place} {}", world.handler.0)).await;
    assert_eq!(world.store.prune().await.unwrap(), 0);
    assert_eq!(world.count("idem_pruner WHERE walked = 150100 AND size = 300000").await, 1);
    assert_eq!(world.store.prune().await.unwrap(), 1, "the last one");
    assert_eq!(world.count("idem_pruner WHERE walked = 0 AND size BETWEEN 300000 AND 301000").await, 1);
    assert_eq!(world.store.prune().await.unwrap(), 1, "the first one");
    assert_eq!(world.count("idem_processed_messages").await, 299_998);
}

#[tokio::test]
async fn a_claim_with_an_inbox_row_is_kept_and_does_not_stop_the_others() {
    let world = world().await;
    old_claims(&world, 1500).await;
    world
        .sql(&format!(
            "INSERT INTO idem_inbox_messages
                 (created_at, run_at, died_at, handler_id, state, reason, key, fingerprint, envelope, payload)
             SELECT 0, 0, 0, {}, 'dead', '{}', key, x'ff', x'', x'' FROM idem_processed_messages
             WHERE processed_at <= 1200",
            world.handler.0,
            Reason::Conflict
        ))
        .await;
    assert_eq!(world.store.prune().await.unwrap(), 300);
    assert_eq!(world.count("idem_processed_messages").await, 1200);
}

#[tokio::test]
async fn one_prunes_at_a_time_and_a_pruner_that_died_is_forgotten() {
    let world = world().await;
    old_claims(&world, 10).await;
    world.sql("UPDATE idem_pruner SET locked_until = unixepoch() * 1000 + 30000").await;
    assert_eq!(world.store.prune().await.unwrap(), 0);
    world.sql("UPDATE idem_pruner SET locked_until = unixepoch() * 1000 - 60000").await;
    assert_eq!(world.store.prune().await.unwrap(), 10);
}

#[tokio::test]
async fn a_walk_that_reads_nothing_forgets_nothing_of_the_last_round() {
    let world = world().await;
    old_claims(&world, 10).await;
    world.sql("UPDATE idem_pruner SET size = 300000").await;
    let refuse =
        "CREATE TRIGGER refuse BEFORE DELETE ON idem_processed_messages BEGIN SELECT RAISE(ABORT, 'refused'); END";
    world.sql(refuse).await;
    world.store.prune().await.unwrap_err();
    assert_eq!(world.count("idem_pruner WHERE walked = 0 AND size = 300000 AND locked_until = 0").await, 1);

    // All claims are kept forever.
    world.sql("UPDATE idem_handlers SET retention = NULL").await;
    world.store.prune().await.unwrap();
    assert_eq!(world.count("idem_pruner WHERE walked = 0 AND size = 300000").await, 1);
    assert_eq!(world.count("idem_processed_messages").await, 10);
}

#[tokio::test]
async fn claims_get_in_between_the_chunks() {
    let world = world().await;
    old_claims(&world, 20_000).await;
    let pruner = tokio::spawn({
        let store = world.store.clone();
        async move { store.prune().await.unwrap() }
    });
    let mut claims = 0;
    while !pruner.is_finished() {
        let txn = world.claimed(&format!("new{claims}")).await;
        assert!(matches!(world.store.commit(txn).await, CommitResult::Done));
        claims += 1;
    }
    assert_eq!(pruner.await.unwrap(), 20_000);
    assert!(claims >= 10, "{claims} claims got in");
}
