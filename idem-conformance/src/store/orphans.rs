//! Rows that may have ended a process.

use std::time::Duration;

use idem_core::Reason;
use idem_core::store::{
    CRASHED_AT_ONCE, ClaimState, InboxRows, MAX_STARTS, Replay, Replayed, Row, RowKind, RowResult, Transactions,
};

use super::stage::{LEASE, Stage, committed};
use super::world::World;

/// Fetches the row as often as possible, and lets each lease end `over` ago.
async fn crash_out<W: World>(stage: &Stage<W>, over: Duration) -> Row {
    stage.schedule("a").await;
    let mut row = stage.fetch_row(RowKind::Ordinary).await;
    for starts in 2..=MAX_STARTS {
        stage.end_leases().await;
        row = stage.fetch_orphan().await;
        assert_eq!(row.crash_count, starts);
    }
    stage.rows_earlier(LEASE + over).await;
    row
}

/// A row with starts but no outcome, or with repeated broken connections, is not fetched with others.
pub async fn a_fetch_of_ordinary_rows_returns_no_orphans<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("crashed").await;
    stage.fetch_row(RowKind::Ordinary).await;
    stage.schedule("broke").await;
    for lost in 0..2 {
        let row = stage.fetch_row(RowKind::Ordinary).await;
        assert_eq!(row.lost_connections, lost, "one lost connection is nothing");
        let broke = RowResult::Broke { due: Duration::ZERO, error: String::new() };
        assert!(stage.store.record_result(&row, &broke).await.unwrap());
    }
    stage.end_leases().await;

    assert!(stage.fetch(RowKind::Ordinary).await.is_empty());
    stage.schedule("ordinary").await;
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.identity, stage.id("ordinary"));
    let mut starts: Vec<u32> = stage.fetch(RowKind::Orphan).await.iter().map(|row| row.crash_count).collect();
    starts.sort_unstable();
    assert_eq!(starts, [1, 2]);
}

/// A row with two or three starts is not fetched with those that have one.
pub async fn a_row_with_two_starts_is_fetched_alone<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let mut starts = vec![stage.fetch_row(RowKind::Ordinary).await.crash_count];
    for kind in [RowKind::Orphan, RowKind::Alone, RowKind::Alone] {
        stage.end_leases().await;
        for other in [RowKind::Ordinary, RowKind::Orphan, RowKind::Alone].into_iter().filter(|other| *other != kind) {
            assert!(stage.fetch(other).await.is_empty(), "{other:?}");
        }
        starts.push(stage.fetch_row(kind).await.crash_count);
        assert!(stage.fetch(kind).await.is_empty(), "one process has it");
    }
    assert_eq!(starts, [1, 2, 3, 4]);
}

/// A row that waits for its codec has no start: the end of its process counts no start, and it is snoozed as it is.
pub async fn a_row_that_waits_in_its_process_has_no_start<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    for _ in 0..2 {
        let row = stage.fetch_row(RowKind::Ordinary).await;
        stage.store.record_result(&row, &RowResult::Refunded).await.unwrap();
        let waits = stage.one_scheduled().await;
        assert_eq!((waits.crash_count, waits.locked_by), (0, row.locked_by));
        assert!(stage.fetch(RowKind::Ordinary).await.is_empty(), "it keeps its lease");
        stage.end_leases().await;
    }
    let row = stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!(row.crash_count, 1, "no start was counted");
    stage.store.record_result(&row, &RowResult::Refunded).await.unwrap();
    assert!(stage.store.record_result(&row, &RowResult::Released { due: LEASE }).await.unwrap());
    assert!(stage.fetch(RowKind::Ordinary).await.is_empty(), "it is not due yet");
    stage.rows_earlier(LEASE).await;
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.crash_count, 1);
}

/// Only the leases of rows that still have the token are extended.
pub async fn leases_are_extended_by_token<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for key in ["a", "b", "c"] {
        stage.schedule(key).await;
    }
    let rows = stage.fetch(RowKind::Ordinary).await;
    let (token, ids) = (rows[0].locked_by.unwrap(), [rows[0].id, rows[1].id]);
    let snoozed = RowResult::Snoozed { due: LEASE * 9 };
    assert!(stage.store.record_result(&rows[1], &snoozed).await.unwrap());
    stage.end_leases().await;
    let before = stage.scheduled().await;
    stage.store.extend(token, &ids, LEASE).await.unwrap();
    stage.store.extend(uuid::Uuid::new_v4(), &[rows[2].id], LEASE).await.unwrap();
    stage.store.extend(token, &[], LEASE).await.unwrap();
    for (row, after) in before.iter().zip(stage.scheduled().await) {
        assert_eq!(after.locked_until > row.locked_until, row.id == rows[0].id, "{}", row.id);
        assert_eq!((after.locked_by, after.crash_count), (row.locked_by, row.crash_count));
    }
}

/// A running row is locked: extending its lease would wait for its handler.
pub async fn to_extend_a_lease_never_waits_for_a_row_that_runs<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    stage.schedule("a").await;
    let row = stage.fetch_row(RowKind::Ordinary).await;
    let running = stage.started(&row).await;
    stage.store.extend(row.locked_by.unwrap(), &[row.id], LEASE).await.unwrap();
    committed(stage.commit(running).await);
    assert!(stage.scheduled().await.is_empty());
}

/// A fetch of orphaned rows returns no other rows.
pub async fn a_fetch_of_orphans_returns_no_ordinary_rows<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    assert!(stage.fetch(RowKind::Orphan).await.is_empty() && stage.fetch(RowKind::Alone).await.is_empty());
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.identity, stage.id("a"));
}

/// Four starts without an outcome are the limit.
pub async fn four_starts_are_not_fetched_again<W: World>(world: W) {
    let stage = Stage::new(world).await;
    crash_out(&stage, LEASE * 10).await;
    assert!(stage.fetch(RowKind::Orphan).await.is_empty() && stage.fetch(RowKind::Alone).await.is_empty());
    assert!(stage.fetch(RowKind::Ordinary).await.is_empty());
}

/// The fourth holder may have begun just before the end of its lease: the row dies only long after that.
pub async fn dead_letter_crashed_waits_for_three_leases<W: World>(world: W) {
    let stage = Stage::new(world).await;
    crash_out(&stage, LEASE * 2).await;
    let dead_letter = async || stage.store.dead_letter_crashed(&[stage.handler], LEASE).await.unwrap();
    assert_eq!(dead_letter().await.len(), 0);
    assert_eq!(stage.store.dead_letter_crashed(&[], LEASE).await.unwrap().len(), 0);
    stage.rows_earlier(LEASE * 2).await;
    let told = dead_letter().await;
    assert_eq!(dead_letter().await.len(), 0);
    let dead = stage.one_dead().await;
    let told: Vec<_> =
        told.iter().map(|row| (row.id, &row.identity, row.crash_count, row.delivery.payload())).collect();
    assert_eq!(told, [(dead.id, &dead.identity, MAX_STARTS, dead.delivery.payload())]);
    assert_eq!(dead.handler, "order_paid");
    assert_eq!((dead.reason, dead.locked_by, dead.attempts), (Some(Reason::Crashed), None, 0));
    assert!(dead.error.starts_with("the process ended 4 times"), "{}", dead.error);
    assert!(dead.died_at.is_some());
    assert!(stage.is_waiting("a").await);

    stage.schedule("three starts").await;
    stage.fetch_row(RowKind::Ordinary).await;
    for _ in 0..2 {
        stage.end_leases().await;
        stage.fetch_orphan().await;
    }
    stage.rows_earlier(LEASE * 10).await;
    assert_eq!(dead_letter().await.len(), 0, "only four starts are a crash");

    assert_eq!(stage.replay(dead.id, Replay::Plain).await, Replayed::Due);
    assert!(stage.fetch(RowKind::Ordinary).await.is_empty(), "a replayed row runs as an orphaned row");
    let row = stage.fetch_row(RowKind::Orphan).await;
    assert_eq!((row.id, row.crash_count), (dead.id, 1), "its starts are counted anew");
}

/// Each of them is read, to be reported. A worker whose rows have crashed together asks again.
pub async fn dead_letter_crashed_takes_no_more_than_its_limit<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for key in 0..=CRASHED_AT_ONCE {
        stage.schedule(&key.to_string()).await;
    }
    let crashed = format!("UPDATE {} SET crash_count = {MAX_STARTS}", stage.world.own("inbox_messages"));
    stage.world.run(&crashed).await;
    stage.rows_earlier(LEASE * 10).await;
    for expected in [CRASHED_AT_ONCE, 1, 0] {
        let dead = stage.store.dead_letter_crashed(&[stage.handler], LEASE).await.unwrap();
        assert_eq!(dead.len(), expected as usize);
    }
}

/// A holder that comes back after the row died changes nothing.
pub async fn a_crashed_row_is_not_revived_by_its_old_holder<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = crash_out(&stage, LEASE * 4).await;
    assert_eq!(stage.store.dead_letter_crashed(&[stage.handler], LEASE).await.unwrap().len(), 1);
    let result = RowResult::Failed { next: Ok(Duration::ZERO), error: String::new() };
    assert!(!stage.store.record_result(&row, &result).await.unwrap());
    let mut txn = stage.begin().await;
    assert_eq!(stage.store.start(&mut txn, &[&row], ClaimState::Processed).await.unwrap(), [false]);
    stage.store.rollback(txn).await.unwrap();
    assert_eq!(stage.one_dead().await.reason, Some(Reason::Crashed));
}
