//! Retries, and replays of dead letters.

use std::time::Duration;

use idem::store::{Operator, Replayed};
use idem::{Outcome, Reason};
use idem_faults::{Act, Order, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_twice_succeeds_with_its_third_attempt() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker);
    world.publish(&Order::new("third", Act::Fail(2)));
    assert_eq!(world.journal.end_of("third").await, Outcome::Processed);
    assert_eq!(world.stage.attempts("third"), [1, 2, 3]);
    assert_eq!(world.effects("third").await, [3]);
    let scheduled = |outcome: &Outcome| match outcome {
        Outcome::Scheduled { attempt, .. } => Some(*attempt),
        _ => None,
    };
    assert_eq!(world.journal.of("third").iter().filter_map(scheduled).collect::<Vec<_>>(), [1, 2]);
    assert!(world.rows(&store).await.is_empty());
    worker.stop().await.unwrap();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_always_fails_is_exhausted_after_five_attempts() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker);
    world.publish(&Order::new("never", Act::Fail(99)));
    assert_eq!(world.journal.end_of("never").await, Outcome::dead(Reason::Exhausted));
    assert_eq!(world.stage.attempts("never"), [1, 2, 3, 4, 5]);
    let row = world.row(&store).await;
    assert_eq!((row.reason, row.attempts), (Some(Reason::Exhausted), 5));
    assert!(world.all_effects().await.is_empty());
    assert_eq!(world.broker.queue("orders").counts().deliveries, 1, "the broker has nothing to do with retries");
    worker.stop().await.unwrap();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_failure_has_one_attempt() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker);
    world.publish(&Order::new("permanent", Act::Permanent));
    assert_eq!(world.journal.end_of("permanent").await, Outcome::dead(Reason::Permanent));
    assert_eq!(world.stage.attempts("permanent"), [1]);
    worker.stop().await.unwrap();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_has_one_effect_however_often_it_is_asked_for_and_whatever_was_pruned() {
    let Some(world) = World::new().await else { return };
    // Prunes everything that may be pruned, at once.
    let store = world.options().retention(Duration::from_micros(1)).connect().await.unwrap();
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker);
    let order = Order::new("later", Act::FailUntilOpen);
    world.publish(&order);
    assert_eq!(world.journal.end_of("later").await, Outcome::dead(Reason::Exhausted));
    let dead = world.row(&store).await;

    store.prune().await.unwrap();
    world.publish(&order);
    world.journal.until("the copy is a duplicate", |j| j.of("later").contains(&Outcome::Duplicate)).await;
    assert_eq!(world.row(&store).await.deliveries, 2);

    world.stage.open();
    let inbox = world.inbox(&store);
    let answers = tokio::join!(inbox.replay(dead.id), inbox.replay(dead.id), inbox.replay(dead.id));
    let answers = [answers.0.unwrap(), answers.1.unwrap(), answers.2.unwrap()];
    assert_eq!(answers.iter().filter(|answer| **answer == Replayed::Due).count(), 1, "{answers:?}");
    world.journal.processed(1).await;
    assert_eq!(world.effects("later").await, [1], "it has all its attempts again");

    let pruned = store.prune().await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM {schema}.processed_messages").await, 0, "{pruned:?}");
    assert_eq!(inbox.replay(dead.id).await.unwrap(), Replayed::NotFound);
    assert_eq!(inbox.replay_by_force(dead.id).await.unwrap(), Replayed::NotFound);
    worker.stop().await.unwrap();
    assert_eq!(world.effects("later").await, [1], "it has all its attempts again");
    assert!(world.rows(&store).await.is_empty());
    world.end().await;
}
