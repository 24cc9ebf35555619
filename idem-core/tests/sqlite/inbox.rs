//! Inbox rows: differences of SQLite, and how much its statements read.

use std::time::Duration;

use idem_core::store::{
    Claims, DueRows, Filter, InboxRows, LookBack, Operator, Page, Replayed, RowKind, RowResult, Stats, TakeLimit,
    Transactions,
};
use idem_core::{Key, Reason};
use uuid::Uuid;

use crate::world::{LONG, World};

#[tokio::test]
async fn a_take_is_committed_by_itself_and_found_again_by_its_token() {
    let world = World::new().await;
    for key in ["a", "b", "c"] {
        world.store(key, Ok(Duration::ZERO)).await;
    }
    world.store("later", Ok(LONG)).await;
    let token = Uuid::new_v4();
    let taken = world.store.take(&[world.handler], RowKind::Ordinary, TakeLimit::rows(2), token, LONG).await.unwrap();
    assert_eq!(taken.iter().map(|row| row.delivery.payload().as_ref()).collect::<Vec<_>>(), [b"a", b"b"]);
    assert!(
        taken.iter().all(|row| row.crash_count == 1 && row.locked_by == Some(token) && row.handler == "order_paid")
    );
    let again = world.store.rows_by_token(token).await.unwrap();
    assert_eq!(again.iter().map(|row| row.id).collect::<Vec<_>>(), taken.iter().map(|row| row.id).collect::<Vec<_>>());
    assert_eq!(
        world
            .store
            .take(&[world.handler], RowKind::Ordinary, TakeLimit::rows(9), Uuid::new_v4(), LONG)
            .await
            .unwrap()
            .len(),
        1
    );
}

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
async fn a_row_goes_from_ordinary_to_suspect_to_crashed() {
    let world = World::new().await;
    world.store("k", Ok(Duration::ZERO)).await;
    let handlers = [world.handler];
    let due = async |lease| world.store.poll_due(&handlers, lease, LookBack::default()).await.unwrap();
    let take = async |kind| {
        world.store.take(&handlers, kind, TakeLimit::rows(9), Uuid::new_v4(), Duration::ZERO).await.unwrap()
    };

    assert_eq!(due(LONG).await, DueRows { ordinary: true, ..DueRows::default() });
    assert_eq!(take(RowKind::Suspect).await.len(), 0);
    assert_eq!(take(RowKind::Ordinary).await.len(), 1);
    assert_eq!(due(LONG).await, DueRows { suspect: true, ..DueRows::default() });
    assert_eq!(take(RowKind::Ordinary).await.len(), 0);
    for starts in 1..4 {
        let row = take(if starts == 1 { RowKind::Suspect } else { RowKind::Alone }).await.remove(0);
        assert_eq!(row.crash_count, starts + 1);
    }
    assert_eq!(take(RowKind::Alone).await.len(), 0);
    assert_eq!(due(LONG).await, DueRows::default());
    assert_eq!(world.store.dead_letter_crashed(&handlers, LONG).await.unwrap().len(), 0);

    world.sql("UPDATE idem_inbox_messages SET run_at = run_at - 200000, locked_until = locked_until - 200000").await;
    assert!(due(LONG).await.crashed);
    assert_eq!(world.store.dead_letter_crashed(&handlers, LONG).await.unwrap().len(), 1);
    let dead = world.store.list("billing", &Filter::default(), Page::default()).await.unwrap();
    assert_eq!((dead[0].reason, dead[0].locked_by), (Some(Reason::Crashed), None));

    // A replayed row runs as a suspect: its starts are 0, and its breaks mark it.
    assert_eq!(world.store.replay("billing", dead[0].id, false).await.unwrap(), Replayed::Due);
    assert_eq!(take(RowKind::Ordinary).await.len(), 0);
    assert_eq!(take(RowKind::Suspect).await[0].crash_count, 1);
}

#[tokio::test]
async fn ten_breaks_are_its_death_and_a_replay_has_breaks_left() {
    let world = World::new().await;
    world.store("k", Ok(Duration::ZERO)).await;
    let broke = RowResult::Broke { due: Duration::ZERO, error: "gone".to_owned() };
    for n in 1..=10 {
        let kind = if n <= 2 { RowKind::Ordinary } else { RowKind::Suspect };
        let rows = world.store.take(&[world.handler], kind, TakeLimit::rows(1), Uuid::new_v4(), LONG).await.unwrap();
        assert!(world.store.record_result(&rows[0], &broke).await.unwrap());
        assert!(!world.store.record_result(&rows[0], &broke).await.unwrap(), "a result was recorded twice");
    }
    let dead = world.store.list("billing", &Filter::default(), Page::default()).await.unwrap();
    assert_eq!((dead[0].reason, dead[0].crash_count, dead[0].lost_connections), (Some(Reason::BrokeConnection), 0, 10));
    world.store.replay("billing", dead[0].id, false).await.unwrap();
    let rows =
        world.store.take(&[world.handler], RowKind::Suspect, TakeLimit::rows(1), Uuid::new_v4(), LONG).await.unwrap();
    assert!(world.store.record_result(&rows[0], &broke).await.unwrap());
    assert_eq!(world.store.stats(&[world.handler]).await.unwrap().dead, 0);
}

#[tokio::test]
async fn discarding_dates_the_claim_that_the_row_owned_and_no_other() {
    let world = World::new().await;
    world.store("dead", Err(Reason::Permanent)).await;
    world.store("waiting", Ok(LONG)).await;
    world
        .sql(&format!(
            "INSERT INTO idem_inbox_messages
                 (created_at, run_at, died_at, handler_id, state, reason, key, fingerprint, envelope, payload)
             SELECT 0, 0, 0, {}, 'dead', reason, CAST(key AS BLOB), x'ff', x'', x''
             FROM (SELECT 'conflict' AS reason, 'waiting' AS key UNION ALL SELECT 'no key', '')",
            world.handler.0
        ))
        .await;
    let dead = world.store.list("billing", &Filter::default(), Page::default()).await.unwrap();
    assert_eq!(dead.len(), 3);
    for row in dead {
        assert!(!world.store.discard("shipping", row.id).await.unwrap(), "another consumer's row was discarded");
        assert!(world.store.discard("billing", row.id).await.unwrap());
        assert!(!world.store.discard("billing", row.id).await.unwrap());
    }
    assert_eq!((world.dated("dead").await, world.dated("waiting").await), (Some(true), Some(false)));
}

#[tokio::test]
async fn a_conflict_is_replayed_only_under_an_unused_key() {
    let world = World::new().await;
    world.process("k").await;
    world.process("taken").await;
    let mut identity = world.identity("k");
    identity.fingerprint = idem_core::Fingerprint::of(b"other");
    let mut txn = world.store.begin(LONG).await.unwrap();
    let delivery = idem_core::Delivery::new("orders", "other");
    let state = Err(Reason::Conflict);
    for _ in 0..2 {
        let row = idem_core::store::NewRow::new(&identity, &delivery, state);
        world.store.insert(&mut txn, &[row]).await.unwrap();
    }
    world.store.commit(txn).await;
    let dead = world.store.list("billing", &Filter::default(), Page::default()).await.unwrap();
    let (id, key) = (dead[0].id, |key: &str| Key::of(key).unwrap());
    assert_eq!(dead[0].deliveries, 2);

    assert_eq!(world.store.replay("billing", id, true).await.unwrap(), Replayed::NeedsKey);
    assert_eq!(world.store.replay_as("billing", id, &key("taken")).await.unwrap(), Replayed::KeyTaken);
    assert_eq!(world.store.replay_as("shipping", id, &key("new")).await.unwrap(), Replayed::NotFound);
    assert_eq!(world.store.replay_as("billing", id, &key("new")).await.unwrap(), Replayed::Due);
    assert_eq!(world.store.replay_as("billing", id, &key("newer")).await.unwrap(), Replayed::NotFound);
    assert_eq!((world.dated("new").await, world.dated("k").await), (Some(false), Some(true)));
    let rows =
        world.store.take(&[world.handler], RowKind::Ordinary, TakeLimit::rows(1), Uuid::new_v4(), LONG).await.unwrap();
    assert_eq!((&rows[0].identity.key, rows[0].reason), (&key("new"), None));
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
