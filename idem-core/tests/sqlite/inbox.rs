//! Inbox rows: differences of SQLite, and how much its statements read.

use std::time::Duration;

use idem_core::Reason;
use idem_core::store::{Claims, InboxRows, Operator, RowKind, Stats, TakeLimit};
use uuid::Uuid;

use crate::world::{LONG, World};

#[tokio::test]
async fn rows_of_other_handlers_are_not_taken_and_the_earliest_of_all_handlers_comes_first() {
    let world = World::new().await;
    let ids = world.store.register("billing", &["x", "y", "z"]).await.unwrap();
    world
        .sql(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 89)
             INSERT INTO idem_inbox_messages (created_at, run_at, handler_id, state, key, fingerprint, envelope, payload)
             SELECT 0, 1000 - i, CASE i % 3 WHEN 0 THEN {} WHEN 1 THEN {} ELSE {} END, 'scheduled',
                    CAST('k' || i AS BLOB), x'', x'', x'' FROM n",
            ids[0].0, ids[1].0, ids[2].0
        ))
        .await;
    let token = Uuid::new_v4();
    let rows = world.store.take(&[ids[0], ids[2]], RowKind::Ordinary, TakeLimit::rows(4), token, LONG).await.unwrap();
    let mut keys = rows.iter().map(|row| row.identity.key.to_string()).collect::<Vec<_>>();
    keys.sort();
    assert_eq!(keys, ["k84", "k86", "k87", "k89"]);
}

#[tokio::test]
async fn stats_count_ordinary_rows_suspects_and_dead_ones_of_these_handlers() {
    let world = World::new().await;
    let stats = async || world.store.stats(&[world.handler]).await.unwrap();
    assert_eq!(stats().await, Stats::default());
    world.store("later", Ok(LONG)).await;
    let now = stats().await;
    assert_eq!((now.scheduled, now.dead, now.oldest_due), (1, 0, None));
    world.store("suspect", Ok(Duration::ZERO)).await;
    world
        .store
        .take(&[world.handler], RowKind::Ordinary, TakeLimit::rows(9), Uuid::new_v4(), Duration::ZERO)
        .await
        .unwrap();
    world.store("ordinary", Ok(Duration::ZERO)).await;
    world.store("dead", Err(Reason::Permanent)).await;
    world.sql("UPDATE idem_inbox_messages SET run_at = run_at - 5000, locked_until = locked_until - 5000 WHERE crash_count > 0 OR state = 'dead'").await;
    let now = stats().await;
    assert_eq!((now.scheduled, now.dead), (3, 1));
    assert!((5..60).contains(&now.oldest_due.unwrap().as_secs()), "{now:?}");
    assert_eq!(world.store.stats(&[]).await.unwrap(), Stats::default());
}
