//! Acks that are requested together.

use futures_util::future::join_all;
use idem_core::{Acker, Delivery, Settled, Source};
use idem_rabbitmq::{Queue, RabbitMqAcker};

use crate::common::relay::Relay;
use crate::common::{World, next, subscribe_options};

/// Publishes messages with the numbers from 0 on, and returns their deliveries, which have the tags from 1 on.
async fn deliveries(world: &World, queue: &mut Queue, count: usize) -> Vec<(Delivery, RabbitMqAcker)> {
    let mut deliveries = Vec::new();
    world.publish_each(0..count).await;
    for n in 0..count {
        let delivery = next(queue).await;
        assert_eq!(delivery.0.payload(), &n.to_string());
        deliveries.push(delivery);
    }
    deliveries
}

async fn ack_all(deliveries: impl IntoIterator<Item = (Delivery, RabbitMqAcker)>) {
    let acks = deliveries.into_iter().map(|(_, acker)| acker.ack());
    assert!(join_all(acks).await.into_iter().all(|settled| settled.unwrap() == Settled::Sent));
}

#[tokio::test]
async fn acks_at_the_same_time_are_one_and_leave_out_what_is_unsettled() {
    let Some(world) = World::new().await else { return };
    let relay = Relay::start(&world.url).await;
    let mut queue = world.open_through(&relay, 100).await;
    let mut first = deliveries(&world, &mut queue, 80).await;
    let mut behind = first.split_off(60);
    ack_all(first.into_iter().rev()).await;
    // One still runs, and another one was dropped. The others are fewer than 32: a channel keeps further acks of a quorum
    // queue back, and forgets them when it is closed (`SOFT_LIMIT` in RabbitMQ's `rabbit_fifo_client`).
    let running = behind.remove(0);
    drop(behind.remove(9));
    ack_all(behind).await;
    assert!(running.1.is_live());
    queue.close().await;
    world.until_ready(2).await;
    assert_eq!(relay.acks(), 1 + 18, "one for those before the running one, and one for each behind it");
    queue.subscribe(subscribe_options(100)).await.unwrap();
    let mut left = [next(&mut queue).await, next(&mut queue).await].map(|(delivery, _)| delivery.payload().to_vec());
    left.sort();
    assert_eq!(left, [b"60", b"70"]);
}

#[tokio::test]
async fn a_delivery_that_is_released_meanwhile_is_not_acked() {
    let Some(world) = World::new().await else { return };
    let mut queue = world.open(100).await;
    for round in 0..20 {
        let mut all = deliveries(&world, &mut queue, 10).await;
        let (_, released) = all.remove(4);
        let (released, ()) = tokio::join!(released.release(), ack_all(all));
        assert_eq!(released.unwrap(), Settled::Sent);
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!((delivery.payload().as_ref(), delivery.redelivered()), (&b"4"[..], true), "round {round}");
        assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
    }
}

/// What was acked by itself before is not acked again: the server would close the channel.
#[tokio::test]
async fn an_ack_that_follows_single_ones_settles_the_rest() {
    let Some(world) = World::new().await else { return };
    let relay = Relay::start(&world.url).await;
    let mut queue = world.open_through(&relay, 10).await;
    let mut all = deliveries(&world, &mut queue, 10).await;
    ack_all([all.remove(8), all.remove(4)]).await;
    ack_all(all).await;
    // There is room for as many again only if all are settled.
    let _again = deliveries(&world, &mut queue, 10).await;
    assert_eq!(relay.acks(), 2 + 1);
}
