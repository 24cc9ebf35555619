//! How long a delivery stays with its worker.

use std::time::Duration;

use idem_conformance::{Proxy, soon, until};
use idem_core::{Acker, Settled, Source};

use crate::common::{SHORT, World, next, nothing_for, subscribe_options};

#[tokio::test]
async fn a_held_delivery_is_extended_and_acked_long_after_its_visibility_timeout() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    let mut queue = world.open_for(4, SHORT).await;
    let (_, acker) = next(&mut queue).await;
    nothing_for(&mut queue, SHORT * 2).await;
    assert!(acker.is_live());
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    assert_eq!((world.ready().await, world.hidden().await), (0, 0));
}

#[tokio::test]
async fn a_delivery_that_waits_in_the_buffer_is_extended() {
    let Some(world) = World::new().await else { return };
    for payload in ["a", "b"] {
        world.publish(payload).await;
    }
    let mut queue = world.open_for(4, SHORT).await;
    let (_, first) = next(&mut queue).await;
    tokio::time::sleep(SHORT * 2).await;
    let (second, acker) = next(&mut queue).await;
    assert!(!second.redelivered());
    for acker in [first, acker] {
        assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    }
}

/// ElasticMQ refuses an expired handle on both kinds of queues, and SQS only on FIFO queues: on a standard queue it confirms, and
/// may not have deleted anything. So the local clock must decide, before anything is sent.
#[tokio::test]
async fn a_delivery_whose_lease_has_ended_is_stale_by_the_local_clock() {
    let Some(world) = World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    world.publish("a").await;
    let mut queue = world.source_through(&relay).await.visibility(SHORT);
    queue.subscribe(subscribe_options(4)).await.unwrap();
    let (_, acker) = next(&mut queue).await;
    // No request to extend it arrives.
    relay.hold(true);
    until(async || !acker.is_live()).await;
    let again = world.steal(SHORT * 10).await;
    assert_eq!(again.body(), Some("a"));
    // Without a server, so nothing is sent.
    assert_eq!(soon(acker.ack()).await.unwrap(), Settled::Stale);
    relay.hold(false);
    assert_eq!(world.hidden().await, 1, "it still belongs to the other");
}

#[tokio::test]
async fn nothing_is_settled_after_the_source_was_closed() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    let mut queue = world.open(4).await;
    let (_, acker) = next(&mut queue).await;
    queue.close().await;
    world.steal(SHORT * 10).await;
    assert!(!acker.is_live());
    assert_eq!(acker.ack().await.unwrap(), Settled::Stale);
    assert_eq!(world.hidden().await, 1, "it belongs to another by then");
}

#[tokio::test]
async fn a_dropped_delivery_comes_again_after_its_visibility_timeout() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    let mut queue = world.open_for(4, SHORT).await;
    drop(next(&mut queue).await);
    let (again, acker) = next(&mut queue).await;
    assert!(again.redelivered() && again.delivery_count() == Some(1));
    acker.ack().await.unwrap();
}

/// A receive that waits when the source closes would take what the close releases.
#[tokio::test]
async fn what_arrives_while_a_source_drains_is_there_for_another() {
    let Some(world) = World::new().await else { return };
    let mut queue = world.open(4).await;
    // A receive waits at the server by now, or will in a moment.
    nothing_for(&mut queue, Duration::from_millis(50)).await;
    let (publish, drain) = (world.publish("a"), queue.drain());
    tokio::join!(publish, drain);
    let mut other = world.open(4).await;
    let (delivery, acker) = next(&mut other).await;
    assert_eq!(delivery.payload(), "a");
    acker.ack().await.unwrap();
    queue.close().await;
}

/// Users pay for requests.
#[tokio::test]
async fn acks_at_the_same_time_are_few_requests() {
    let Some(world) = World::new().await else { return };
    for number in 0..30 {
        world.publish(number.to_string()).await;
    }
    let mut queue = world.source().await;
    queue.subscribe(subscribe_options(30)).await.unwrap();
    let mut ackers = Vec::new();
    for _ in 0..30 {
        ackers.push(next(&mut queue).await.1);
    }
    let settled = futures_util::future::join_all(ackers.into_iter().map(Acker::ack)).await;
    assert!(settled.into_iter().all(|settled| settled.unwrap() == Settled::Confirmed));
    assert_eq!((world.ready().await, world.hidden().await), (0, 0));
}
