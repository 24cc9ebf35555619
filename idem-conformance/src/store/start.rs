//! Starting a fetched row: the row is deleted and the claim is dated, in the handler's transaction.

use std::time::Duration;

use idem_core::Reason;
use idem_core::store::{ClaimState, InboxRows, RowKind, Transactions};

use super::stage::{Stage, committed};
use super::world::World;

/// Both happen in one statement, and are visible to others only after the commit.
pub async fn start_deletes_the_row_and_dates_its_claim<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    stage.schedule("b").await;
    let rows = stage.fetch(RowKind::Ordinary).await;
    let row = rows.iter().find(|row| row.identity.key.as_bytes() == b"a").unwrap();

    let mut txn = stage.started(row).await;
    stage.effect(&mut txn, "a").await;
    assert_eq!(stage.scheduled().await.len(), 2, "nobody sees it before the commit");
    committed(stage.commit(txn).await);
    assert_eq!(stage.effects("a").await, 1);
    assert_eq!(stage.one_scheduled().await.identity, stage.id("b"));
    assert!(stage.is_dated("a").await);
    assert!(stage.is_waiting("b").await);
}

/// Without a commit, nothing has started.
pub async fn a_rolled_back_start_leaves_row_and_claim<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let row = stage.fetch_row(RowKind::Ordinary).await;
    let mut txn = stage.started(&row).await;
    stage.effect(&mut txn, "a").await;
    stage.store.rollback(txn).await.unwrap();

    let left = stage.one_scheduled().await;
    assert_eq!((left.locked_by, left.crash_count, left.id), (row.locked_by, 1, row.id));
    assert!(stage.is_waiting("a").await);
    assert_eq!(stage.effects("a").await, 0);
}

/// A holder that has lost its lease to another one does not start the row, neither by itself nor with others.
pub async fn a_start_with_a_stale_token_is_false<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let old = stage.fetch_row(RowKind::Ordinary).await;
    stage.end_leases().await;
    let new = stage.fetch_row(RowKind::Orphan).await;

    let mut txn = stage.begin().await;
    assert_eq!(stage.store.start(&mut txn, &[&old], ClaimState::Processed).await.unwrap(), [false]);
    stage.store.rollback(txn).await.unwrap();
    assert_eq!(stage.one_scheduled().await.locked_by, new.locked_by);
    assert!(stage.is_waiting("a").await);
    stage.schedule("b").await;
    let held = stage.fetch_row(RowKind::Ordinary).await;
    let mut txn = stage.begin().await;
    assert_eq!(stage.store.start(&mut txn, &[&old, &held], ClaimState::Processed).await.unwrap(), [false, true]);
    stage.store.rollback(txn).await.unwrap();
    committed(stage.commit(stage.started(&new).await).await);
}

/// A processed row cannot be started again.
pub async fn a_second_start_is_false<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let row = stage.fetch_row(RowKind::Ordinary).await;
    for expected in [true, false] {
        let mut txn = stage.begin().await;
        assert_eq!(stage.store.start(&mut txn, &[&row], ClaimState::Processed).await.unwrap(), [expected]);
        committed(stage.commit(txn).await);
    }
}

/// While a row runs, its claim is being updated. A copy finds the committed claim at once and reads that it is waiting.
pub async fn a_duplicate_does_not_wait_for_a_row_that_runs<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    stage.schedule("a").await;
    let row = stage.fetch_row(RowKind::Ordinary).await;
    let running = stage.started(&row).await;

    let mut copy = stage.store.begin(Duration::from_secs(30)).await.unwrap();
    let claimed = stage.store.claim(&mut copy, &[&stage.id("a")], ClaimState::Processed).await.unwrap();
    assert!(!claimed[0].is_new());
    let existing_claim = stage.store.existing_claims(&mut copy, &[&row.identity], true).await.unwrap()[0].unwrap();
    assert_eq!((existing_claim.fingerprint, existing_claim.age), (row.identity.fingerprint, None));
    committed(stage.commit(copy).await);
    committed(stage.commit(running).await);
}

/// A message is scheduled while its row is scheduled, fetched or running; not when it is processed or dead, nor for
/// another message of its key.
pub async fn a_message_is_scheduled_until_its_row_is_done<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (a, b, other) = (stage.id("a"), stage.id("b"), stage.message("a", "another"));
    let is_scheduled = async |identity| stage.store.is_scheduled(identity).await.unwrap();
    assert!(!is_scheduled(&a).await);
    stage.schedule("a").await;
    // A copy may have a fingerprint by another recipe.
    assert!(is_scheduled(&a).await && is_scheduled(&other).await && !is_scheduled(&b).await);
    let row = stage.fetch_row(RowKind::Ordinary).await;
    assert!(is_scheduled(&a).await);
    let txn = stage.started(&row).await;
    assert!(is_scheduled(&a).await, "it is not committed");
    committed(stage.commit(txn).await);
    assert!(!is_scheduled(&a).await);
    stage.dead_letter("dead", Reason::Permanent).await;
    assert!(!is_scheduled(&stage.id("dead")).await);
}
