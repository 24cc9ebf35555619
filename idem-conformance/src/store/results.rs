//! The result of a fetched row: recorded with its token, which is then cleared.

use std::time::{Duration, SystemTime};

use idem_core::Reason;
use idem_core::store::{InboxRows, MAX_LOST_CONNECTIONS, Replay, Replayed, Row, RowKind, RowResult};

use super::stage::{LEASE, Stage};
use super::world::World;

const HOUR: Duration = Duration::from_secs(3600);

fn failed(next: Result<Duration, Reason>) -> RowResult {
    RowResult::Failed { next, error: "it failed".to_owned() }
}

fn broke() -> RowResult {
    RowResult::Broke { due: Duration::ZERO, error: "it broke".to_owned() }
}

/// A scheduled row, fetched.
async fn fetched<W: World>(stage: &Stage<W>) -> Row {
    stage.schedule("a").await;
    stage.fetch_row(RowKind::Ordinary).await
}

/// Attempts + 1, starts 0, lost connections 0, due later; the error is kept and the token cleared.
pub async fn a_failure_counts_an_attempt_and_resets_starts_and_breaks<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    assert!(stage.store.record_result(&row, &broke()).await.unwrap());
    // A single break means only a lost connection.
    let row = stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!((row.crash_count, row.lost_connections), (1, 1));

    assert!(stage.store.record_result(&row, &failed(Ok(HOUR))).await.unwrap());
    let recorded = stage.one_scheduled().await;
    assert_eq!(
        (recorded.attempts, recorded.crash_count, recorded.lost_connections, recorded.locked_by),
        (1, 0, 0, None)
    );
    assert_eq!((recorded.error.as_str(), recorded.reason, recorded.died_at), ("it failed", None, None));
    assert!(recorded.run_at.duration_since(recorded.created_at).unwrap() >= HOUR - LEASE);
    assert_eq!(recorded.delivery.attempt(), 2);
    assert!(stage.fetch(RowKind::Ordinary).await.is_empty(), "it is not due yet");
    assert!(stage.is_waiting("a").await);
}

/// Given up: dead with the reason, and the claim is kept.
pub async fn a_failure_without_a_next_attempt_is_dead<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    assert!(stage.store.record_result(&row, &failed(Err(Reason::Exhausted))).await.unwrap());
    let dead = stage.one_dead().await;
    assert_eq!((dead.reason, dead.attempts, dead.locked_by, dead.crash_count), (Some(Reason::Exhausted), 1, None, 0));
    let died_at = dead.died_at.unwrap();
    assert!(died_at >= dead.created_at && died_at > SystemTime::UNIX_EPOCH);
    assert!(stage.is_waiting("a").await);
    assert!(stage.fetch(RowKind::Ordinary).await.is_empty());
    assert!(stage.fetch(RowKind::Orphan).await.is_empty() && stage.fetch(RowKind::Alone).await.is_empty());
}

/// The reply to the first write was lost, and the write is repeated: it finds no token.
pub async fn a_failure_is_never_recorded_twice<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    for expected in [true, false, false] {
        assert_eq!(stage.store.record_result(&row, &failed(Ok(Duration::ZERO))).await.unwrap(), expected);
        assert_eq!(stage.one_scheduled().await.attempts, 1);
    }
}

/// A holder that has lost its lease writes nothing, and the new holder's token stays.
pub async fn a_result_with_a_stale_token_changes_nothing<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let old = fetched(&stage).await;
    stage.end_leases().await;
    let new = stage.fetch_orphan().await;
    let snoozed = RowResult::Snoozed { due: Duration::ZERO };
    let dead = RowResult::Dead { reason: Reason::Undecodable, error: "stale".to_owned() };
    for result in [
        failed(Ok(HOUR)),
        failed(Err(Reason::Exhausted)),
        broke(),
        snoozed,
        RowResult::Released { due: Duration::ZERO },
        dead,
    ] {
        assert!(!stage.store.record_result(&old, &result).await.unwrap(), "{result:?}");
    }
    let row = stage.one_scheduled().await;
    assert_eq!((row.locked_by, row.crash_count, row.attempts, row.lost_connections), (new.locked_by, 2, 0, 0));
    assert_eq!(row.error, "first");
    assert!(row.locked_until >= new.locked_until);
    assert!(stage.store.record_result(&new, &failed(Ok(HOUR))).await.unwrap());
}

/// A run that lost its connection is not a crash: the start is refunded and the break counted.
pub async fn a_break_gives_the_start_back_and_counts_itself<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    assert!(stage.store.record_result(&row, &broke()).await.unwrap());
    let recorded = stage.one_scheduled().await;
    assert_eq!(
        (recorded.crash_count, recorded.lost_connections, recorded.attempts, recorded.locked_by),
        (0, 1, 0, None)
    );
    assert_eq!(recorded.error, "it broke");
    assert!(!stage.store.record_result(&row, &broke()).await.unwrap());
    assert_eq!(stage.one_scheduled().await.lost_connections, 1);
}

/// A message that breaks its connection again and again is given up.
pub async fn ten_breaks_are_dead<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut row = fetched(&stage).await;
    for lost in 1..MAX_LOST_CONNECTIONS {
        assert!(stage.store.record_result(&row, &broke()).await.unwrap());
        row = if lost < 2 { stage.fetch_row(RowKind::Ordinary).await } else { stage.fetch_orphan().await };
        assert_eq!((row.lost_connections, row.crash_count), (lost, 1));
    }
    assert!(stage.store.record_result(&row, &broke()).await.unwrap());
    let dead = stage.one_dead().await;
    assert_eq!(
        (dead.reason, dead.lost_connections, dead.crash_count, dead.error.as_str()),
        (Some(Reason::BrokeConnection), MAX_LOST_CONNECTIONS, 0, "it broke")
    );
    assert!(dead.died_at.unwrap() >= dead.created_at);
    assert!(stage.is_waiting("a").await);

    assert_eq!(stage.replay(dead.id, Replay::Plain).await, Replayed::Due);
    let row = stage.fetch_row(RowKind::Orphan).await;
    assert!(stage.store.record_result(&row, &broke()).await.unwrap());
    assert_eq!(stage.one_scheduled().await.id, dead.id, "a replayed row may lose connections again");
}

/// A row that did not run is as it was before it was fetched.
pub async fn a_row_that_was_snoozed_has_no_start<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    assert!(stage.store.record_result(&row, &RowResult::Snoozed { due: Duration::ZERO }).await.unwrap());
    let row = stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!((row.crash_count, row.attempts, row.lost_connections, row.error.as_str()), (1, 0, 0, "first"));
    assert!(stage.store.record_result(&row, &RowResult::Snoozed { due: HOUR }).await.unwrap());
    assert!(stage.fetch(RowKind::Ordinary).await.is_empty());
}

/// A message that can never run is dead without an attempt.
pub async fn dead_without_an_attempt<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    let result = RowResult::Dead { reason: Reason::Undecodable, error: "no JSON".to_owned() };
    assert!(stage.store.record_result(&row, &result).await.unwrap());
    let dead = stage.one_dead().await;
    assert_eq!((dead.reason, dead.attempts, dead.locked_by), (Some(Reason::Undecodable), 0, None));
    assert_eq!(dead.error, "no JSON");
    assert_eq!(
        (dead.crash_count, dead.lost_connections),
        (row.crash_count, row.lost_connections),
        "an operator sees what happened before"
    );
    assert!(!stage.store.record_result(&row, &result).await.unwrap());
}

/// A start that did not run because the lease was lost is refunded; the current holder keeps the row.
pub async fn refund_start_takes_a_start_back_and_leaves_the_token<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let old = fetched(&stage).await;
    stage.end_leases().await;
    let new = stage.fetch_orphan().await;
    assert_eq!(new.crash_count, 2);
    stage.store.record_result(&old, &RowResult::Refunded).await.unwrap();
    let row = stage.one_scheduled().await;
    assert_eq!((row.crash_count, row.locked_by), (1, new.locked_by));
}

/// An outcome may already have reset the starts.
pub async fn refund_start_never_goes_below_zero<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    assert!(stage.store.record_result(&row, &failed(Ok(Duration::ZERO))).await.unwrap());
    stage.store.record_result(&row, &RowResult::Refunded).await.unwrap();
    assert_eq!(stage.one_scheduled().await.crash_count, 0);
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.crash_count, 1);
}
