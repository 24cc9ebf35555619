//! FIFO queues: the order of message groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use idem_conformance::{Proxy, until};
use idem_core::{Acker, DeliveryOrder, Settled, Source};
use idem_sqs::Queue;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};

use crate::common::{SHORT, World, loss, next, nothing_for, subscribe_options};

async fn open(world: &World, max_unsettled: u16) -> Queue {
    let mut queue = world.source().await.visibility(SHORT);
    queue.subscribe(subscribe_options(max_unsettled).with_order(DeliveryOrder::Key)).await.unwrap();
    queue
}

#[tokio::test]
async fn deliveries_of_a_group_have_its_key_and_its_order() {
    let Some(world) = World::fifo().await else { return };
    for (payload, group) in [("a1", "a"), ("b1", "b"), ("a2", "a"), ("a3", "a")] {
        world.publish_to(payload, Some(group)).await;
    }
    let mut queue = open(&world, 10).await;
    let mut of_a = Vec::new();
    for _ in 0..4 {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.partition_key(), Some(&delivery.payload()[..1]));
        assert!(delivery.headers().get("MessageDeduplicationId").is_some());
        if delivery.partition_key() == Some(b"a") {
            of_a.push((delivery.payload().clone(), delivery.ordering_key()));
        }
        assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    }
    let payloads: Vec<_> = of_a.iter().map(|(payload, _)| &payload[..]).collect();
    assert_eq!(payloads, [b"a1", b"a2", b"a3"]);
    assert!(of_a[0].1.is_some() && of_a.iter().all(|(_, key)| *key == of_a[0].1));
}

/// The queue hands out a group from its beginning only when nothing of it is in flight. If the first delivery is dropped and
/// those behind it run, it runs last.
#[tokio::test]
async fn what_is_behind_a_dropped_delivery_of_its_group_comes_again_behind_it() {
    let Some(world) = World::fifo().await else { return };
    for (payload, group) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")] {
        world.publish_to(payload, Some(group)).await;
    }
    let mut queue = open(&world, 10).await;
    let mut first = Vec::new();
    for _ in 0..4 {
        first.push(next(&mut queue).await);
    }
    first.sort_by_key(|(delivery, _)| delivery.payload().clone());
    let mut ackers: Vec<_> = first.into_iter().map(|(_, acker)| acker).collect();
    assert!(ackers.iter().all(Acker::is_live));
    drop(ackers.remove(0));
    let live: Vec<_> = ackers.iter().map(Acker::is_live).collect();
    assert_eq!(live, [false, false, true]);
    assert_eq!(ackers.pop().unwrap().ack().await.unwrap(), Settled::Confirmed, "another group");
    for acker in ackers {
        assert_eq!(acker.ack().await.unwrap(), Settled::Stale);
    }
    for payload in ["a1", "a2", "a3"] {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.payload(), payload);
        assert!(delivery.redelivered());
        assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    }
    nothing_for(&mut queue, SHORT / 3).await;
}

#[tokio::test]
async fn a_group_that_was_released_by_a_close_comes_in_its_order() {
    let Some(world) = World::fifo().await else { return };
    for payload in ["1", "2", "3", "4"] {
        world.publish_to(payload, Some("a")).await;
    }
    let mut queue = open(&world, 10).await;
    let (_, acker) = next(&mut queue).await;
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    let _held = next(&mut queue).await;
    queue.close().await;
    let mut other = open(&world, 10).await;
    for payload in ["2", "3", "4"] {
        let (delivery, acker) = next(&mut other).await;
        assert_eq!(delivery.payload(), payload);
        acker.ack().await.unwrap();
    }
}

/// The messages of a receive whose answer is lost are hidden, with their groups, until their visibility timeout ends: 30 seconds.
/// The same receive brings them at once.
#[tokio::test]
async fn a_receive_without_an_answer_is_repeated_and_brings_the_same_messages() {
    let Some(world) = World::fifo().await else { return };
    let swallows = Arc::new(AtomicBool::new(false));
    let is_swallowed = Arc::clone(&swallows);
    let relay = Proxy::passing(&world.url, move |mut client, mut server| {
        let is_swallowed = Arc::clone(&is_swallowed);
        async move {
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
            let answers = async {
                let mut bytes = vec![0; 65_536];
                while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                    if !is_swallowed.load(SeqCst) && to_client.write_all(&bytes[..count]).await.is_err() {
                        break;
                    }
                }
            };
            tokio::select! {
                _ = copy(&mut from_client, &mut to_server) => {}
                () = answers => {}
            }
        }
    })
    .await;
    let options = || subscribe_options(10).with_order(DeliveryOrder::Key);
    let mut queue = world.source_through(&relay).await;
    queue.subscribe(options()).await.unwrap();
    swallows.store(true, SeqCst);
    world.publish_to("a", Some("group")).await;
    until(async || world.hidden().await == 1).await;
    relay.cut();
    loss(&mut queue).await;
    swallows.store(false, SeqCst);
    queue.subscribe(options()).await.unwrap();
    let (delivery, acker) = next(&mut queue).await;
    assert_eq!(delivery.payload(), "a");
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
}
