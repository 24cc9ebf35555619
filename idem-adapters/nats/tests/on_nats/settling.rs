//! Settling deliveries, and what happens to those that are not settled.

use std::time::Duration;

use crate::common::{World, loss, next, nothing_for, subscribe_options};
use idem_core::{Acker, Settled, Source};

/// It is gathered with others for a moment only: these may be held for any time.
#[tokio::test]
async fn a_single_free_slot_brings_the_next_message_while_all_others_are_held() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..17).await;
    let mut stream = world.open(16).await;
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(next(&mut stream).await);
    }
    let (_, acker) = held.swap_remove(5);
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    assert_eq!(next(&mut stream).await.0.payload(), "16");
}

#[tokio::test]
async fn an_unconfirmed_ack_is_only_sent() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let mut stream = world.source().await.unconfirmed_acks();
    stream.subscribe(subscribe_options(1)).await.unwrap();
    let (_, acker) = next(&mut stream).await;
    assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
    world.until(0, 0).await;
}

#[tokio::test]
async fn unsettled_deliveries_are_redelivered_after_the_close_and_cannot_be_settled() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    world.publish("b").await;
    let mut stream = world.open(2).await;
    let (_, kept) = next(&mut stream).await;
    drop(next(&mut stream).await);
    stream.close().await;
    assert!(!kept.is_live());

    // The ack wait is 30 seconds; nothing here waits that long.
    let mut another = world.open(2).await;
    let again = [next(&mut another).await, next(&mut another).await];
    assert!(again.iter().all(|(delivery, _)| delivery.redelivered()));
    assert_eq!(kept.ack().await.unwrap(), Settled::Stale);
    assert_eq!(world.info().await.num_ack_pending, 2);
}

#[tokio::test]
async fn a_delivery_outlives_a_source_that_was_dropped() {
    let Some((_world, stream, acker)) = World::delivered(1).await else { return };
    drop(stream);
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
}

#[tokio::test]
async fn a_delivery_that_was_dropped_counts_until_the_server_has_it_back() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    world.publish("b").await;
    let mut stream = world.open_short(1).await;
    drop(next(&mut stream).await);
    nothing_for(&mut stream, Duration::from_millis(500)).await;
    let mut left = Vec::new();
    for _ in 0..2 {
        let (delivery, acker) = next(&mut stream).await;
        assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
        left.push(delivery.payload().clone());
    }
    left.sort();
    assert_eq!(left, ["a", "b"]);
}

#[tokio::test]
async fn draining_releases_what_is_buffered_and_leaves_the_rest_to_be_acked() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..4).await;
    let mut stream = world.open(4).await;
    let (first, second) = (next(&mut stream).await, next(&mut stream).await);
    world.until(0, 4).await;
    stream.drain().await;
    loss(&mut stream).await;
    let mut another = world.open(4).await;
    let mut buffered =
        [next(&mut another).await.0, next(&mut another).await.0].map(|delivery| delivery.payload().clone());
    buffered.sort();
    assert_eq!(buffered, ["2", "3"]);
    assert!(first.1.is_live());
    assert_eq!(first.1.ack().await.unwrap(), Settled::Confirmed);
    assert_eq!(second.1.release().await.unwrap(), Settled::Confirmed);
    assert_eq!(next(&mut another).await.0.payload(), "1");
}

#[tokio::test]
async fn a_drained_source_asks_for_nothing_more() {
    let Some(world) = World::new().await else { return };
    let mut stream = world.open(4).await;
    stream.drain().await;
    for _ in 0..20 {
        world.publish("x").await;
    }
    assert_eq!((world.info().await.num_pending, world.info().await.num_ack_pending), (20, 0));
}
