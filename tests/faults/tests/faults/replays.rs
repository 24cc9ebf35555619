//! Replays of dead letters.

use std::time::Duration;

use idem::store::{Consumers, Replayed};
use idem::{Outcome, Reason};
use idem_faults::{Act, Order, World};

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
    assert_eq!(world.row(&store).await.id, dead.id);

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
