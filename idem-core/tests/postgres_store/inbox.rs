//! Rows that run while others look at them, and behaviour specific to PostgreSQL's locks.

use std::time::Duration;

use idem_core::store::{DueRows, InboxRows, LookBack, RowKind, RowResult, TakeLimit, Transactions};
use idem_core::{Error, Fingerprint, Inbox, Key};

use crate::world::{DEADLINE, LEASE, World, world};

const NOW: Duration = Duration::ZERO;

/// Lets this many leases elapse for everything that is taken.
async fn leases_pass(world: &mut World, leases: f64) {
    let sql = "UPDATE inbox_messages SET locked_until = now() - $1 * interval '10 seconds' WHERE locked_by IS NOT NULL";
    sqlx::query(sql).bind(leases).execute(&mut world.other).await.unwrap();
}

/// Sets the number of starts of everything that is taken.
async fn started(world: &mut World, starts: i32) {
    let sql = "UPDATE inbox_messages SET crash_count = $1 WHERE locked_by IS NOT NULL";
    sqlx::query(sql).bind(starts).execute(&mut world.other).await.unwrap();
}

async fn due(world: &World) -> DueRows {
    world.store.poll_due(&[world.handler], LEASE, LookBack::default()).await.unwrap()
}

#[tokio::test]
async fn a_row_that_runs_past_its_lease_is_left_alone() {
    let Some(mut world) = world().await else { return };
    world.schedule("slow", Ok(NOW)).await;
    assert_eq!(due(&world).await, DueRows { ordinary: true, ..DueRows::default() });
    let row = world.take(RowKind::Ordinary, 1).await.remove(0);
    for (starts, leases) in [(1, 1.0), (4, 5.0)] {
        started(&mut world, starts).await;
        leases_pass(&mut world, leases).await;
        let mut txn = world.store.begin(DEADLINE).await.unwrap();
        assert_eq!(world.store.start(&mut txn, &[&row]).await.unwrap(), [true]);
        assert_eq!(due(&world).await, DueRows::default(), "a running row is nothing to be done");
        assert!(world.take(RowKind::Suspect, 1).await.is_empty());
        assert_eq!(world.store.dead_letter_crashed(&[world.handler], LEASE).await.unwrap().len(), 0);
        world.store.rollback(txn).await.unwrap();
    }
    assert_eq!(due(&world).await, DueRows { crashed: true, ..DueRows::default() });
    assert_eq!(world.store.dead_letter_crashed(&[world.handler], LEASE).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_suspect_behind_a_running_one_is_taken() {
    let Some(mut world) = world().await else { return };
    world.schedule("first", Ok(NOW)).await;
    world.schedule("second", Ok(NOW)).await;
    let rows = world.take(RowKind::Ordinary, 2).await;
    assert_eq!(rows.len(), 2);
    leases_pass(&mut world, 1.0).await;
    let mut txn = world.store.begin(DEADLINE).await.unwrap();
    assert_eq!(world.store.start(&mut txn, &[&rows[0]]).await.unwrap(), [true]);
    assert!(due(&world).await.suspect);
    let taken = world.take(RowKind::Suspect, 1).await;
    assert_eq!(taken.iter().map(|row| row.id).collect::<Vec<_>>(), [rows[1].id]);
    assert_eq!(taken[0].crash_count, 2);
    world.store.rollback(txn).await.unwrap();
}

#[tokio::test]
async fn giving_a_start_back_neither_waits_for_a_run_nor_goes_below_none() {
    let Some(mut world) = world().await else { return };
    world.schedule("lost", Ok(NOW)).await;
    let row = world.take(RowKind::Ordinary, 1).await.remove(0);
    let mut run = world.store.begin(DEADLINE).await.unwrap();
    assert_eq!(world.store.start(&mut run, &[&row]).await.unwrap(), [true]);
    world.store.refund_start(&row).await.unwrap();
    world.store.rollback(run).await.unwrap();
    world.store.refund_start(&row).await.unwrap();
    world.store.refund_start(&row).await.unwrap();
    let taken = "SELECT count(*) FROM inbox_messages WHERE crash_count = 0 AND locked_by IS NOT NULL";
    assert_eq!(world.number(taken).await, 1);
    assert!(world.store.record_result(&row, &RowResult::GivenBack { due: NOW }).await.unwrap());
    assert!(!world.store.record_result(&row, &RowResult::GivenBack { due: NOW }).await.unwrap());
}

#[tokio::test]
async fn takers_at_once_share_rows_without_taking_one_twice_or_more_than_they_may() {
    let Some(mut world) = world().await else { return };
    let fill = "INSERT INTO inbox_messages (handler_id, key, fingerprint, state, envelope, payload)
                SELECT $1, n::text::bytea, '', 'scheduled', '{}', '' FROM generate_series(1, 400) AS n";
    sqlx::query(fill).bind(world.handler.0).execute(&mut world.other).await.unwrap();
    let mut takers = Vec::new();
    for _ in 0..8 {
        let (store, handler) = (world.store.clone(), world.handler);
        takers.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let token = uuid::Uuid::new_v4();
                let rows = store.take(&[handler], RowKind::Ordinary, TakeLimit::rows(7), token, LEASE).await.unwrap();
                assert!(rows.len() <= 7);
                assert!(rows.iter().all(|row| row.locked_by == Some(token) && row.crash_count == 1));
                match rows.is_empty() && !store.poll_due(&[handler], LEASE, LookBack::default()).await.unwrap().ordinary
                {
                    true => return ids,
                    false => ids.extend(rows.into_iter().map(|row| row.id)),
                }
            }
        }));
    }
    let mut ids = Vec::new();
    for taker in takers {
        ids.extend(taker.await.unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids.len(), 400);
    ids.dedup();
    assert_eq!(ids.len(), 400);
}

/// No worker could tell such a message from one without a key.
#[tokio::test]
async fn nobody_claims_or_replays_under_the_empty_key() {
    let Some(mut world) = world().await else { return };
    let empty = Key::stored(b"").unwrap();
    let claim = world.store.claim_in(&mut world.other, "importer", "row", empty.clone(), Fingerprint::none()).await;
    assert!(matches!(claim, Err(Error::Config(_))), "{claim:?}");
    let replayed = Inbox::new(&world.store, "billing").replay_as(1, &empty).await;
    assert!(matches!(replayed, Err(Error::Config(_))), "{replayed:?}");
}
