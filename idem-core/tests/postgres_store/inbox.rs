//! Rows that run while others look at them, and behaviour specific to PostgreSQL's locks.

use std::time::Duration;

use idem_core::operator::Operator;
use idem_core::store::{ClaimState, InboxRows, LookBack, RowKind, RowResult, Transactions};
use idem_core::{Error, Fingerprint, Key};

use crate::world::{DEADLINE, LEASE, World, world};

const NOW: Duration = Duration::ZERO;

/// Lets this many leases elapse for everything that is fetched.
async fn leases_pass(world: &mut World, leases: f64) {
    let sql = "UPDATE inbox_messages SET locked_until = now() - $1 * interval '10 seconds' WHERE locked_by IS NOT NULL";
    sqlx::query(sql).bind(leases).execute(&mut world.other).await.unwrap();
}

#[tokio::test]
async fn an_orphan_behind_a_running_one_is_fetched() {
    let Some(mut world) = world().await else { return };
    world.schedule("first", Ok(NOW)).await;
    world.schedule("second", Ok(NOW)).await;
    let rows = world.fetch(RowKind::Ordinary, 2).await;
    assert_eq!(rows.len(), 2);
    leases_pass(&mut world, 1.0).await;
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    assert_eq!(world.store.start(&mut txn, &[&rows[0]], ClaimState::Processed).await.unwrap(), [true]);
    assert!(world.store.poll_due(&[world.handler], LEASE, LookBack::default()).await.unwrap().orphan);
    let fetched = world.fetch(RowKind::Orphan, 1).await;
    assert_eq!(fetched.iter().map(|row| row.id).collect::<Vec<_>>(), [rows[1].id]);
    assert_eq!(fetched[0].crash_count, 2);
    world.store.rollback(txn).await.unwrap();
}

#[tokio::test]
async fn giving_a_start_back_neither_waits_for_a_run_nor_goes_below_none() {
    let Some(mut world) = world().await else { return };
    world.schedule("lost", Ok(NOW)).await;
    let row = world.fetch(RowKind::Ordinary, 1).await.remove(0);
    let mut run = world.store.begin(DEADLINE).await.unwrap();
    assert_eq!(world.store.start(&mut run, &[&row], ClaimState::Processed).await.unwrap(), [true]);
    world.store.record_result(&row, &RowResult::Refunded).await.unwrap();
    world.store.rollback(run).await.unwrap();
    world.store.record_result(&row, &RowResult::Refunded).await.unwrap();
    world.store.record_result(&row, &RowResult::Refunded).await.unwrap();
    let fetched = "SELECT count(*) FROM inbox_messages WHERE crash_count = 0 AND locked_by IS NOT NULL";
    assert_eq!(world.number(fetched).await, 1);
    assert!(world.store.record_result(&row, &RowResult::Snoozed { due: NOW }).await.unwrap());
    assert!(!world.store.record_result(&row, &RowResult::Snoozed { due: NOW }).await.unwrap());
}

/// No worker could tell such a message from one without a key.
#[tokio::test]
async fn nobody_claims_or_replays_under_the_empty_key() {
    let Some(mut world) = world().await else { return };
    let empty = Key::stored(b"").unwrap();
    let claim = world.store.claim_key(&mut world.other, "importer", "row", empty.clone(), Fingerprint::none()).await;
    assert!(matches!(claim, Err(Error::Config(_))), "{claim:?}");
    let replayed = Operator::new(&world.store).consumer("billing").replay_as(1, &empty).await;
    assert!(matches!(replayed, Err(Error::Config(_))), "{replayed:?}");
}
