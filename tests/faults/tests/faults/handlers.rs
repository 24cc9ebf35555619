//! Misbehaving handlers: the table in the README.

use std::time::Duration;

use idem::store::{Replayed, Row};
use idem::{Outcome, Reason};
use idem_faults::{Act, Order, Running, World, answers, quick, until};
use sqlx::Connection;

/// A worker that allows two attempts per message.
async fn stage() -> Option<(World, idem::Postgres, Running)> {
    let world = World::new().await?;
    let store = world.store().await;
    let worker = world.start(&store, world.broker.queue("orders"), |worker| {
        worker.retry(quick(2)).handler_timeout(Duration::from_secs(2))
    });
    Some((world, store, worker))
}

/// The message becomes a dead letter with this reason and these effects.
async fn dies(act: Act, reason: Reason, attempts: u32, effects: &[&str]) -> Option<(World, idem::Postgres, Row)> {
    let (world, store, worker) = stage().await?;
    world.publish(&Order::new("bad", act));
    assert_eq!(world.journal.end_of("bad").await, Outcome::dead(reason));
    world.broker.idle().await;
    let row = world.row(&store).await;
    assert_eq!((row.reason, row.attempts), (Some(reason), attempts), "{}", row.error);
    let mut runs = world.stage.attempts("bad");
    if matches!(act, Act::Hang) {
        // A late handler is charged only if the database answers within a second; on a busy machine it may not.
        runs.dedup();
    }
    assert_eq!(runs, (1..=attempts).collect::<Vec<_>>());
    let found: Vec<String> = world.all_effects().await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(found, effects);
    assert_eq!(world.broker.queue("orders").counts().redeliveries, 0);
    // It leaves no state that affects others.
    world.publish(&Order::new("good", Act::Nest));
    assert_eq!(world.journal.end_of("good").await, Outcome::Processed);
    assert_eq!(world.effects("good").await, [1]);
    worker.stop().await.unwrap();
    // The server may notice the end of a connection some time later.
    until("no transaction is open", || async { world.sessions("state LIKE 'idle in transaction%'").await == 0 }).await;
    Some((world, store, row))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_tried_again_until_the_attempts_are_used_up() {
    let Some((world, _, row)) = dies(Act::Fail(9), Reason::Exhausted, 2, &[]).await else { return };
    assert_eq!(row.error, "attempt 2 fails");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_error_is_given_up_at_once() {
    let Some((world, _, row)) = dies(Act::Permanent, Reason::Permanent, 1, &[]).await else { return };
    assert_eq!(row.error, "no attempt can cure it");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_sql_error_is_a_failure() {
    let Some((world, _, row)) = dies(Act::Swallow, Reason::Exhausted, 2, &[]).await else { return };
    assert!(row.error.contains("swallowed a SQL error"), "{}", row.error);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_by_the_handler_is_given_up_and_can_be_replayed() {
    let Some((world, store, row)) = dies(Act::Rollback, Reason::RolledBack, 1, &[]).await else { return };
    assert!(row.error.contains("ROLLBACK"), "{}", row.error);
    assert_eq!(world.inbox(&store).replay(row.id).await.unwrap(), Replayed::Due);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_by_the_handler_is_given_up_and_replayed_only_by_force() {
    let Some((world, store, row)) = dies(Act::Commit, Reason::Committed, 1, &["bad"]).await else { return };
    assert_eq!(world.inbox(&store).replay(row.id).await.unwrap(), Replayed::NeedsForce);
    assert_eq!(world.inbox(&store).replay_by_force(row.id).await.unwrap(), Replayed::Due);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_and_a_begin_by_the_handler_write_nothing_after_the_commit() {
    let Some((world, store, row)) = dies(Act::CommitAndBegin, Reason::Committed, 1, &["bad"]).await else { return };
    assert_eq!(world.inbox(&store).replay(row.id).await.unwrap(), Replayed::NeedsForce);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failure() {
    let Some((world, _, row)) = dies(Act::Panic, Reason::Exhausted, 2, &[]).await else { return };
    assert!(row.error.contains("a handler that panics"), "{}", row.error);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_hangs_fails_at_its_timeout() {
    let Some((world, _, row)) = dies(Act::Hang, Reason::Exhausted, 2, &[]).await else { return };
    assert!(row.error.contains("exceeded its timeout"), "{}", row.error);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_after_a_nested_commit_takes_that_back_too() {
    let Some((world, ..)) = dies(Act::NestAndFail, Reason::Exhausted, 2, &[]).await else { return };
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_transactions_are_savepoints() {
    let Some((world, store, worker)) = stage().await else { return };
    world.publish(&Order::new("nest", Act::Nest));
    assert_eq!(world.journal.end_of("nest").await, Outcome::Processed);
    let effects: Vec<String> = world.all_effects().await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(effects, ["nest", "nest kept"]);
    assert!(world.rows(&store).await.is_empty());
    worker.stop().await.unwrap();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_timeout_in_the_handler_is_its_own_failure() {
    let Some((world, store, worker)) = stage().await else { return };
    let mut conn = world.pool.acquire().await.unwrap();
    let mut lock = conn.begin().await.unwrap();
    sqlx::query(world.stage.sql("UPDATE {schema}.business SET n = 7")).execute(&mut *lock).await.unwrap();
    world.publish(&Order::new("late", Act::LockTimeout));
    assert_eq!(world.journal.end_of("late").await, Outcome::dead(Reason::Exhausted));
    let row = world.row(&store).await;
    assert!(row.attempts == 2 && row.error.contains("lock timeout"), "{row:?}");
    lock.rollback().await.unwrap();
    drop(conn);

    assert_eq!(world.inbox(&store).replay(row.id).await.unwrap(), Replayed::Due);
    world.journal.processed(1).await;
    assert_eq!(world.effects("late").await, [1], "a replayed message has all its attempts again");
    worker.stop().await.unwrap();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_open_a_second_connection_do_not_starve_the_store() {
    let Some(world) = World::new().await else { return };
    // 8 deliveries, 2 being stored at once, 1 row, 3 for bookkeeping: no connection to spare.
    let store = world.options().connections(14).connect().await.unwrap();
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker.concurrency(8).inbox_concurrency(1));
    for n in 0..24 {
        world.publish(&Order::new(format!("order-{n}"), Act::SecondConnection));
    }
    world.journal.processed(24).await;
    assert!(answers(&store).await);
    for n in 0..24 {
        assert_eq!(world.effects(&format!("order-{n}")).await, [1]);
        assert_eq!(world.effects(&format!("order-{n} by another connection")).await, [1]);
    }
    worker.stop().await.unwrap();
    world.end().await;
}
