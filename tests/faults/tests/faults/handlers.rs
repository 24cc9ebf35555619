//! Lock timeouts and second connections of handlers. The suite of the pipeline has their other faults.

use idem::store::Replayed;
use idem::{Outcome, Reason};
use idem_faults::{Act, Order, World, answers, quick};
use sqlx::Connection;

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_timeout_in_the_handler_is_its_own_failure() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker.retry(quick(2)));
    let mut conn = world.pool.acquire().await.unwrap();
    let mut lock = conn.begin().await.unwrap();
    sqlx::query(world.stage.sql("UPDATE {schema}.business SET n = 7")).execute(&mut *lock).await.unwrap();
    world.publish(&Order::new("late", Act::LockTimeout));
    assert_eq!(world.journal.end_of("late").await, Outcome::dead(Reason::Exhausted));
    let row = world.row(&store).await;
    assert!(row.attempts == 2 && row.error.contains("lock timeout"), "{row:?}");
    lock.rollback().await.unwrap();
    drop(conn);

    assert_eq!(world.operator(&store).replay(row.id).await.unwrap(), Replayed::Due);
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
