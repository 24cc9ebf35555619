//! The effects of settling a delivery, and of not settling it.

use std::time::Duration;

use crate::common::{World, loss, next, subscribe_options};
use idem_core::{Acker, Settled, Source};

#[tokio::test]
async fn only_what_is_finished_from_the_front_on_is_committed() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..5).await;
    let mut topic = world.open(5).await;
    let mut ackers = Vec::new();
    for _ in 0..5 {
        ackers.push(Some(next(&mut topic).await.1));
    }
    for n in [0, 2, 4] {
        assert_eq!(ackers[n].take().unwrap().ack().await.unwrap(), Settled::Sent);
    }
    world.until_committed(0, 1).await;
    ackers[1].take().unwrap().ack().await.unwrap();
    world.until_committed(0, 3).await;
    // Like a crash, which settles nothing.
    topic.close().await;
    assert_eq!(world.committed(0), Some(3));
    let mut again = world.open(5).await;
    assert_eq!(next(&mut again).await.0.payload(), "3");
    assert_eq!(next(&mut again).await.0.payload(), "4");
}

#[tokio::test]
async fn a_message_at_the_front_lets_its_partition_go_on_for_a_window_and_no_further() {
    let Some(world) = World::with(2).await else { return };
    world.publish_each(0..20).await;
    let mut topic = world.topic().await.window(8);
    topic.subscribe(subscribe_options(100)).await.unwrap();
    let (_, first) = next(&mut topic).await;
    for _ in 1..8 {
        next(&mut topic).await.1.ack().await.unwrap();
    }
    world.publish_to(1, "other").await;
    let (other, _) = next(&mut topic).await;
    assert_eq!(other.payload(), "other", "the other partition goes on");
    first.ack().await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "8");
}

#[tokio::test]
async fn after_an_assignment_a_window_of_deliveries_is_marked_until_they_were_stored() {
    let Some(world) = World::new().await else { return };
    let mut topic = world.topic().await.window(3);
    topic.subscribe(subscribe_options(1)).await.unwrap();
    for (stores, marked) in [(true, true), (false, true), (true, true), (true, true), (true, false), (true, false)] {
        world.publish("x").await;
        let (delivery, mut acker) = next(&mut topic).await;
        assert_eq!(delivery.redelivered(), marked);
        if stores {
            acker.stored();
        }
        acker.ack().await.unwrap();
    }
    topic.close().await;
    topic.subscribe(subscribe_options(1)).await.unwrap();
    world.publish("x").await;
    assert!(next(&mut topic).await.0.redelivered());
}

#[tokio::test]
async fn a_delivery_that_was_dropped_comes_again_after_the_close() {
    let Some(world) = World::new().await else { return };
    world.publish_each(["a", "b"]).await;
    let mut topic = world.open(1).await;
    drop(next(&mut topic).await);
    // It is still unsettled, so there is no room for another delivery.
    assert!(tokio::time::timeout(Duration::from_millis(300), topic.next()).await.is_err());
    topic.close().await;
    topic.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(next(&mut topic).await.0.payload(), "a");
}

#[tokio::test]
async fn a_source_that_was_dropped_gives_everything_back() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    let mut topic = world.open(2).await;
    let (_, acker) = next(&mut topic).await;
    drop(topic);
    assert_eq!(next(&mut world.open(2).await).await.0.payload(), "a");
    assert_eq!(acker.ack().await.unwrap(), Settled::Stale);
}

#[tokio::test]
async fn an_ack_while_draining_is_committed_by_the_close() {
    let Some(world) = World::new().await else { return };
    world.publish_each(["a", "b"]).await;
    let mut topic = world.open(2).await;
    let (first, second) = (next(&mut topic).await.1, next(&mut topic).await.1);
    topic.drain().await;
    loss(&mut topic).await;
    assert_eq!(first.ack().await.unwrap(), Settled::Sent);
    assert_eq!(second.ack().await.unwrap(), Settled::Sent);
    topic.close().await;
    assert_eq!(world.committed(0), Some(2));
}
