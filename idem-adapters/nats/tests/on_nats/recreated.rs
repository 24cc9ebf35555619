//! Streams that were deleted and recreated: they number their messages from 1 again, and so do their consumers.

use crate::common::{SHORT, World, loss, next, nothing_for, subscribe_options};
use idem_core::{Acker, Settled, Source};

#[tokio::test]
async fn an_ack_of_before_settles_no_message_of_a_stream_that_was_recreated() {
    let Some((world, mut stream, old)) = World::delivered(1).await else { return };
    world.delete().await;
    loss(&mut stream).await;
    world.make(|_| {}).await;
    world.publish("b").await;
    stream.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(old.ack().await.unwrap(), Settled::Stale);
    let (delivery, _new) = next(&mut stream).await;
    assert_eq!(delivery.payload(), "b");
    assert_eq!(world.info().await.num_ack_pending, 1);
}

/// The first worker has no room, so no pull of it waits, and nothing tells it that the stream is another one. The second
/// belongs to a service that has run before, as the first does.
#[tokio::test]
async fn an_ack_soon_after_the_stream_was_recreated_settles_nothing_there() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    let mut stream = world.open_short(1).await;
    let (_, old) = next(&mut stream).await;
    world.delete().await;
    world.make(|_| {}).await;
    world.publish("b").await;
    let mut other = world.source().await.ack_wait(SHORT);
    other.subscribe(subscribe_options(1).with_history(true)).await.unwrap();
    // The duration itself is tested: the message could be settled as soon as it is delivered.
    nothing_for(&mut other, SHORT).await;
    // Some servers do not answer an ack of a message that they have not delivered.
    let _ = old.ack().await;
    // It has room now, and may have pulled the message before it has compared its stream.
    stream.close().await;
    let (delivery, _held) = next(&mut other).await;
    assert_eq!(delivery.payload(), "b");
    assert_eq!(world.info().await.num_ack_pending, 1);
}

/// Its next pull reaches the new consumer before anything has told it of that.
#[tokio::test]
async fn a_consumer_that_is_recreated_between_two_pulls_is_noticed() {
    let Some((world, mut stream, old)) = World::delivered(1).await else { return };
    // Times that differ by less than a second count as the same.
    tokio::time::sleep(SHORT * 3 / 2).await;
    world.delete().await;
    world.make(|_| {}).await;
    world.consumer(|_| {}).await;
    drop(old);
    let error = loss(&mut stream).await;
    assert!(format!("{error:?}").contains("recreated"), "{error:?}");
}

/// The source no longer lists a delivery that was superseded.
#[tokio::test]
async fn an_ack_of_an_earlier_attempt_settles_no_message_of_a_stream_that_was_recreated() {
    let Some((world, relay, mut stream, first)) = World::delivered_through(4).await else { return };
    relay.hold(true);
    // The duration itself is tested: the lease ends, and the server delivers the message again.
    tokio::time::sleep(SHORT * 3 / 2).await;
    relay.hold(false);
    let (delivery, _second) = next(&mut stream).await;
    assert!(delivery.redelivered());
    world.delete().await;
    loss(&mut stream).await;
    world.make(|_| {}).await;
    world.publish("b").await;
    stream.subscribe(subscribe_options(4)).await.unwrap();
    assert_eq!(next(&mut stream).await.0.payload(), "b");
    assert_eq!(first.ack().await.unwrap(), Settled::Stale);
    assert_eq!(world.info().await.num_ack_pending, 1);
}

/// By then the number is that of a message that another worker has.
#[tokio::test]
async fn an_ack_that_comes_while_the_stream_is_another_one_waits_and_settles_nothing_there() {
    let Some((world, mut stream, old)) = World::delivered(1).await else { return };
    world.delete().await;
    loss(&mut stream).await;
    world.make(|_| {}).await;
    world.publish("b").await;
    let mut other = world.open(1).await;
    let (delivery, _held) = next(&mut other).await;
    assert_eq!(delivery.payload(), "b");
    let late = tokio::spawn(old.ack());
    // No event marks an ack that must not arrive.
    tokio::time::sleep(SHORT).await;
    assert_eq!(world.info().await.num_ack_pending, 1);
    stream.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(late.await.unwrap().unwrap(), Settled::Stale);
    assert_eq!(world.info().await.num_ack_pending, 1);
}
