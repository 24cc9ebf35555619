//! Rows that were stored ahead of their turn, and are made due.

use std::time::Duration;

use idem_core::Reason;
use idem_core::store::{Identity, InboxRows, RowKind, RowResult};

use super::stage::{Stage, committed, register};
use super::world::World;

/// A row stored ahead of its turn can be made due; a taken or dead row stays unchanged.
pub async fn a_row_that_waits_for_its_turn_is_made_due<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.row(&stage.id("ahead"), true, Ok(Duration::from_secs(7 * 24 * 3600))).await;
    let dead = stage.dead_letter("dead", Reason::Permanent).await;
    assert!(stage.take(RowKind::Ordinary).await.is_empty());
    let make_due = async |key, after| stage.store.make_due(&stage.id(key), after).await.unwrap();
    make_due("ahead", Duration::from_secs(3600)).await;
    assert!(stage.take(RowKind::Ordinary).await.is_empty(), "it is due in an hour");
    let soon = stage.one_scheduled().await.due_at;
    make_due("ahead", Duration::from_secs(7 * 24 * 3600)).await;
    assert_eq!(stage.one_scheduled().await.due_at, soon, "its turn has come, and it may have been given back");
    for key in ["ahead", "dead", "unknown"] {
        make_due(key, Duration::ZERO).await;
    }
    // What is due stays so.
    make_due("ahead", Duration::from_secs(3600)).await;
    let row = stage.take_one(RowKind::Ordinary).await;
    assert_eq!(row.identity, stage.id("ahead"));
    make_due("ahead", Duration::ZERO).await;
    assert!(stage.take(RowKind::Ordinary).await.is_empty(), "it is taken");
    assert_eq!(stage.one_dead().await.id, dead);
}

/// Of all rows of a handler, those that were stored ahead of their turn are made due at once, if they are due within the
/// given time.
pub async fn all_rows_that_wait_for_their_turn_are_made_due<W: World>(world: W) {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let stage = Stage::new(world).await;
    let other = register(&stage.store, "billing", "order_shipped").await;
    for (key, days) in [("soon", 1), ("ahead", 3), ("late", 7)] {
        stage.row(&stage.id(key), true, Ok(DAY * days)).await;
    }
    stage.row(&Identity { handler: other, ..stage.id("of another") }, true, Ok(DAY * 3)).await;
    stage.dead_letter("dead", Reason::Permanent).await;
    stage.schedule("failed").await;
    let failed = stage.take_one(RowKind::Ordinary).await;
    let result = RowResult::Failed { next: Ok(DAY * 3), error: "failed".into() };
    assert!(stage.store.record_result(&failed, &result).await.unwrap());

    let make_all_due = async || stage.store.make_all_due(&[stage.handler], DAY * 2..DAY * 6).await.unwrap();
    assert_eq!((make_all_due().await, make_all_due().await), (1, 0));
    assert_eq!(stage.take_one(RowKind::Ordinary).await.identity, stage.id("ahead"));
}

/// A copy of a message that was stored ahead of its turn makes it due if it is asked to, and changes no row that has run.
pub async fn a_duplicate_makes_what_waits_for_its_turn_due<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let hour = Duration::from_secs(3600);
    for key in ["a", "b"] {
        stage.row(&stage.id(key), true, Ok(hour)).await;
    }
    stage.schedule("failed").await;
    let failed = stage.take_one(RowKind::Ordinary).await;
    let result = RowResult::Failed { next: Ok(hour), error: "failed".into() };
    assert!(stage.store.record_result(&failed, &result).await.unwrap());
    let ids = ["a", "b", "failed"].map(|key| stage.id(key));

    for makes_due in [false, true] {
        let mut txn = stage.begin().await;
        for id in [&ids[0], &ids[2]] {
            stage.store.count_duplicate(&mut txn, id, makes_due).await.unwrap();
        }
        stage.store.count_duplicates(&mut txn, &[&ids[1], &ids[1], &ids[2]], makes_due).await.unwrap();
        committed(stage.commit(txn).await);
        let rows = stage.take(RowKind::Ordinary).await;
        assert_eq!(rows.len(), if makes_due { 2 } else { 0 });
        assert!(rows.iter().all(|row| row.identity != ids[2] && row.deliveries == 1));
    }
}
