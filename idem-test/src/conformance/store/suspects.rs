//! Rows that may have ended a process.

use std::time::Duration;

use idem_core::store::{Kind, MAX_STARTS, Note, Row};
use idem_core::{Reason, Store};

use super::{LEASE, Stage, World};

/// Takes the row as often as it can be, and lets each lease end by this much.
async fn crash_out<W: World>(stage: &Stage<W>, over: Duration) -> Row {
    stage.park("a").await;
    let mut row = stage.take_one(Kind::Ordinary).await;
    for starts in 2..=MAX_STARTS {
        stage.end_leases().await;
        row = stage.take_one(Kind::Suspect).await;
        assert_eq!(row.starts, starts);
    }
    stage.rows_earlier(LEASE + over).await;
    row
}

/// What was begun without an outcome, or has broken a connection, is not taken with others.
pub async fn take_ordinary_never_takes_suspects<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.park("crashed").await;
    stage.take_one(Kind::Ordinary).await;
    stage.park("broke").await;
    let row = stage.take_one(Kind::Ordinary).await;
    let broke = Note::Broke { due: Duration::ZERO, error: String::new() };
    assert!(stage.store.note(&row, &broke).await.unwrap());
    stage.end_leases().await;

    assert!(stage.take(Kind::Ordinary).await.is_empty());
    stage.park("ordinary").await;
    assert_eq!(stage.take_one(Kind::Ordinary).await.identity, stage.id("ordinary"));
    assert_eq!(stage.take(Kind::Suspect).await.len(), 2);
}

/// And a suspect's turn is no turn for others.
pub async fn take_suspect_never_takes_ordinary_rows<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.park("a").await;
    assert!(stage.take(Kind::Suspect).await.is_empty());
    assert_eq!(stage.take_one(Kind::Ordinary).await.identity, stage.id("a"));
}

/// Three starts without an outcome are enough.
pub async fn three_starts_are_not_taken_again<W: World>(world: W) {
    let stage = Stage::new(world).await;
    crash_out(&stage, LEASE * 10).await;
    assert!(stage.take(Kind::Suspect).await.is_empty());
    assert!(stage.take(Kind::Ordinary).await.is_empty());
}

/// The third holder may have begun just before the end of its lease: it is judged only when that is long over.
pub async fn judge_waits_for_three_leases<W: World>(world: W) {
    let stage = Stage::new(world).await;
    crash_out(&stage, LEASE * 2).await;
    let judge = async || stage.store.judge(&[stage.handler], LEASE).await.unwrap();
    assert_eq!(judge().await, 0);
    assert_eq!(stage.store.judge(&[], LEASE).await.unwrap(), 0);
    stage.rows_earlier(LEASE * 2).await;
    assert_eq!(judge().await, 1);
    assert_eq!(judge().await, 0);
    let dead = stage.one_dead().await;
    assert_eq!((dead.reason, dead.token, dead.attempts), (Some(Reason::Crashed), None, 0));
    assert!(dead.died_at.is_some());
    assert!(stage.is_waiting("a").await);

    stage.park("two starts").await;
    stage.take_one(Kind::Ordinary).await;
    stage.end_leases().await;
    stage.take_one(Kind::Suspect).await;
    stage.rows_earlier(LEASE * 10).await;
    assert_eq!(judge().await, 0, "only three starts are judged");
}

/// A holder that comes back after the judgement changes nothing any more.
pub async fn a_judged_row_is_not_brought_back_by_its_old_holder<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = crash_out(&stage, LEASE * 4).await;
    assert_eq!(stage.store.judge(&[stage.handler], LEASE).await.unwrap(), 1);
    let note = Note::Failed { next: Ok(Duration::ZERO), error: String::new() };
    assert!(!stage.store.note(&row, &note).await.unwrap());
    let mut txn = stage.begin().await;
    assert!(!stage.store.start(&mut txn, &row).await.unwrap());
    stage.store.rollback(txn).await.unwrap();
    assert_eq!(stage.one_dead().await.reason, Some(Reason::Crashed));
}
