//! Copies of one message, at once, in two workers.

use std::collections::HashSet;

use idem::Outcome;
use idem_faults::{Act, Order, World, answers, within};

/// A plain BEGIN is a connection that is being opened.
const BUSY: &str =
    "xact_start IS NOT NULL AND (wait_event_type = 'Lock' OR state LIKE 'idle in%') AND query <> 'BEGIN'";

#[tokio::test(flavor = "multi_thread")]
async fn ten_copies_at_once_in_two_workers_have_one_effect_and_no_ack_before_its_commit() {
    let Some(world) = World::new().await else { return };
    // 5 deliveries, 2 being stored at once, 1 row, 3 for bookkeeping: no connection to spare.
    let stores = [11, 11].map(|connections| world.options().connections(connections).connect());
    let [first, second] = stores;
    let stores = [first.await.unwrap(), second.await.unwrap()];
    let queue = world.broker.queue("orders");
    // Each takes five of the ten copies.
    let workers = stores.each_ref().map(|store| {
        world.start(store, queue.clone(), |worker| worker.concurrency(5).prefetch(5).inbox_concurrency(1))
    });
    let order = Order::new("copied", Act::Hold);
    for _ in 0..10 {
        world.publish(&order);
    }
    within("all copies are handed out", queue.delivered(10)).await;
    world.stage.entered(1).await;

    // The other worker waits for the claim, times out, and tries again: three waits show that it was held between them.
    let asked = "SELECT query_start::text FROM pg_stat_activity
                 WHERE application_name = '{schema}' AND wait_event_type = 'Lock'";
    let mut waits: HashSet<String> = HashSet::new();
    within("the other worker waits for the claim again and again", async {
        while waits.len() < 3 {
            waits.extend(sqlx::query_scalar(world.stage.sql(asked)).fetch_all(&world.pool).await.unwrap());
            // The running one and a waiting one: single flight keeps the others in memory.
            let busy = world.sessions(BUSY);
            assert!(busy.await <= 2, "copies hold connections");
            let counts = queue.counts();
            assert_eq!((counts.acks, counts.releases, counts.unsettled), (0, 0, 10), "settled before the commit");
            assert_eq!(world.stage.runs().len(), 1);
        }
    })
    .await;
    for store in &stores {
        assert!(answers(store).await, "the pool is exhausted");
    }

    world.stage.open();
    within("a copy is settled", queue.settled(1)).await;
    assert_eq!(world.effects("copied").await, [1], "it was settled before the commit");
    within("all copies are settled", queue.settled(10)).await;
    for worker in workers {
        worker.stop().await.unwrap();
    }
    assert_eq!(world.all_effects().await, [("copied".to_owned(), 1)]);
    assert_eq!(world.stage.runs().len(), 1);
    assert_eq!(world.journal.count(|outcome| *outcome == Outcome::Processed), 1);
    assert_eq!(world.journal.count(|outcome| *outcome == Outcome::Duplicate), 9);
    assert_eq!(queue.counts().redeliveries, 0);
    world.end().await;
}
