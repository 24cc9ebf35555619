//! Ack, release, and drop.

use idem_core::{Acker, Settled, Source};

use crate::soon;
use idem_test::Publication;

use super::steps::{ack, counted, next, nothing_comes, open, take, until_ready};
use super::world::World;

/// An acked message is never redelivered, not even after the connection has closed.
pub async fn ack_ends_it<W: World>(world: W) {
    world.publish(Publication::new("once")).await;
    let mut source = open(&world, 4).await;
    let (_, acker) = next(&mut source).await;
    assert!(acker.is_live());
    ack(acker).await;
    soon(source.close()).await;

    let mut another = open(&world, 4).await;
    nothing_comes(&mut another).await;
    assert_eq!(world.ready().await, 0);
}

/// A broker that confirms acks returns `Confirmed`; one that does not returns `Sent`.
pub async fn an_ack_is_answered_as_the_broker_does<W: World>(world: W) {
    world.publish(Publication::new("once")).await;
    let mut source = open(&world, 1).await;
    let (_, acker) = next(&mut source).await;
    let expected = if W::FEATURES.confirms { Settled::Confirmed } else { Settled::Sent };
    assert_eq!(soon(acker.ack()).await.unwrap(), expected);
}

/// A released message is redelivered at once to any source, or otherwise when the subscription has ended.
pub async fn release_brings_it_back<W: World>(world: W) {
    world.publish(Publication::new("back")).await;
    let mut source = open(&world, 1).await;
    let (_, acker) = next(&mut source).await;
    assert_ne!(soon(acker.release()).await.unwrap(), Settled::Stale);
    if !W::FEATURES.releases {
        nothing_comes(&mut source).await;
        soon(source.close()).await;
        source = open(&world, 1).await;
    }

    let again = take(&mut source).await;
    assert_eq!(again.payload().as_ref(), b"back");
    // How often the broker has delivered it is not the attempt.
    assert_eq!((again.redelivered(), again.attempt()), (W::FEATURES.redelivered, 1));
    nothing_comes(&mut source).await;
}

/// An unsettled message is redelivered when the connection closes, and marked if the broker has a mark.
pub async fn dropping_unsettled_and_closing_brings_it_back_as_redelivered<W: World>(world: W) {
    world.publish(Publication::new("dropped").header("h", "v")).await;
    let mut source = open(&world, 4).await;
    let (first, acker) = next(&mut source).await;
    assert_eq!(first.redelivered(), W::FEATURES.presumes);
    drop(acker);
    nothing_comes(&mut source).await;
    soon(source.close()).await;

    let mut another = open(&world, 4).await;
    let second = take(&mut another).await;
    assert_eq!(second.payload(), first.payload());
    assert_eq!(second.headers().get("h"), Some(&b"v"[..]));
    assert_eq!(second.redelivered(), W::FEATURES.redelivered);
}

/// The prefetch comes from the options: another delivery arrives only once one is settled.
pub async fn no_more_than_in_flight_are_unsettled<W: World>(world: W) {
    for number in 0..4u8 {
        world.publish(Publication::new(vec![number])).await;
    }
    let mut source = open(&world, 2).await;
    let (_, first) = next(&mut source).await;
    let (_, _second) = next(&mut source).await;
    nothing_comes(&mut source).await;
    assert_eq!(world.ready().await, counted::<W>(2, 2), "the broker still has those for which there is no room");

    ack(first).await;
    let (third, _third) = next(&mut source).await;
    assert!(W::FEATURES.grouped || third.payload().as_ref() == [2], "{third:?}");
    nothing_comes(&mut source).await;
    until_ready(&world, counted::<W>(1, 2)).await;
}

/// Draining ends the subscription: messages not yet handed out go back at once, and deliveries handed out can still be
/// settled.
pub async fn drain_releases_what_is_buffered_and_lets_in_flight_settle<W: World>(world: W) {
    for number in 0..4u8 {
        world.publish(Publication::new(vec![number])).await;
    }
    let mut source = open(&world, 4).await;
    let (first, acked) = next(&mut source).await;
    let (_, released) = next(&mut source).await;
    soon(source.drain()).await;
    assert!(soon(source.next()).await.is_err(), "the subscription has ended");
    assert!(acked.is_live() && released.is_live());
    until_ready(&world, if W::FEATURES.counts_released { counted::<W>(2, 2) } else { 0 }).await;

    ack(acked).await;
    assert_ne!(soon(released.release()).await.unwrap(), Settled::Stale);
    soon(source.close()).await;
    until_ready(&world, if W::FEATURES.counts_released { 3 } else { 0 }).await;

    let mut another = open(&world, 4).await;
    let mut left = Vec::new();
    for _ in 0..3 {
        left.push(take(&mut another).await.payload()[0]);
    }
    left.sort_unstable();
    let mut others = vec![0, 1, 2, 3];
    others.retain(|number| *number != first.payload()[0]);
    assert_eq!(left, others);
}

/// A worker that cannot subscribe ends like any other.
pub async fn draining_and_closing_what_was_never_opened_does_nothing<W: World>(world: W) {
    let mut source = world.source().await;
    soon(source.drain()).await;
    soon(source.close()).await;
    assert!(soon(source.next()).await.is_err());
}
