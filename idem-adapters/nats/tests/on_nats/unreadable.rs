//! Messages that async-nats cannot read.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::raw::{UNREADABLE, publish_raw, publish_unreadable};
use crate::common::{LONG, SHORT, World, loss, next, nothing_for, subscribe_options};
use futures_util::future::join_all;
use idem_conformance::Proxy;
use idem_conformance::texts;
use idem_core::{Acker, Settled, Source};
use idem_nats::Nats;
use tokio::time::timeout;

/// Also tests a message in the middle of others, which are delivered meanwhile.
#[tokio::test]
async fn a_message_that_async_nats_cannot_read_is_delivered_as_undeliverable_and_removed() {
    let named: (&[u8], _, _) = (b"NATS/1.0\r\n\r\n", b"\xff", "the subject is not UTF-8, or holds white space");
    let headed: (&[u8], _, _) = (UNREADABLE, b"x", "the headers are not UTF-8");
    for (max_unsettled, (headers, token, what)) in [(1, headed), (4, headed), (4, named)] {
        let Some(world) = World::new().await else { return };
        world.publish_each(0..3).await;
        publish_raw(&world, &[world.stream.as_bytes(), b".", token].concat(), headers).await;
        world.publish_each(3..6).await;
        let mut stream = world.source().await.ack_wait(SHORT);
        let (mut fit, mut undeliverable) = (BTreeSet::new(), 0);
        let all = async {
            while fit.len() < 6 || undeliverable == 0 {
                stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
                while let Ok((delivery, acker)) = stream.next().await {
                    if let Some(why) = delivery.unrepresentable() {
                        assert_eq!((why, &**delivery.payload()), (what, &b"x"[..]));
                        assert_eq!(delivery.headers().get("idem-nats-headers"), Some(headers));
                        let subject = String::from_utf8_lossy(token);
                        assert_eq!(delivery.subject(), Some(&*format!("{}.{subject}", world.stream)));
                        undeliverable += 1;
                    } else {
                        fit.insert(delivery.payload().clone());
                    }
                    // If the connection is lost, the ack waits for another one, which is not needed here.
                    let _ = timeout(SHORT / 2, acker.ack()).await;
                    if fit.len() == 6 && undeliverable > 0 {
                        break;
                    }
                }
            }
        };
        timeout(2 * LONG, all).await.unwrap();
        // One whose ack was lost with its connection is delivered again.
        let again = async {
            loop {
                stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
                while let Ok((_, acker)) = stream.next().await {
                    let _ = timeout(SHORT / 2, acker.ack()).await;
                }
            }
        };
        tokio::select! {
            () = world.until(0, 0) => {}
            () = again => {}
        }
        stream.subscribe(subscribe_options(max_unsettled)).await.unwrap();
        world.publish("goes on").await;
        assert_eq!(next(&mut stream).await.0.payload(), "goes on");
    }
}

#[tokio::test]
async fn a_message_that_async_nats_cannot_read_is_left_to_the_consumer_that_takes_it() {
    let Some(world) = World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    let stream = Nats::connect(relay.address()).await.unwrap().stream(&world.stream).await.unwrap();
    let mut stream = stream.filter_subject(world.subject());
    world.publish("first").await;
    publish_raw(&world, &[world.stream.as_bytes(), b".other"].concat(), UNREADABLE).await;
    world.publish("last").await;
    stream.subscribe(subscribe_options(4)).await.unwrap();
    let held = [next(&mut stream).await, next(&mut stream).await];
    for _ in 0..2 {
        relay.cut();
        loss(&mut stream).await;
        stream.subscribe(subscribe_options(4)).await.unwrap();
    }
    nothing_for(&mut stream, Duration::from_millis(300)).await;
    for (_, acker) in held {
        assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    }
    world.until(0, 0).await;
}

#[tokio::test]
async fn a_message_that_async_nats_cannot_read_is_named_as_a_cause() {
    let Some(world) = World::new().await else { return };
    publish_unreadable(&world).await;
    let mut stream = world.open(1).await;
    let error = texts(loss(&mut stream).await.as_ref());
    assert!(error.contains("not UTF-8") && error.contains("rmm"), "{error}");
    world.jetstream.get_stream(&world.stream).await.unwrap().delete_message(1).await.unwrap();
    world.publish("y").await;
    stream.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(next(&mut stream).await.0.payload(), "y");
}

/// Otherwise a worker would look ready while the database refuses the one message that all others wait for.
#[tokio::test]
async fn a_subscription_has_room_for_unreadable_messages_alone_until_they_are_settled() {
    let Some(world) = World::new().await else { return };
    publish_unreadable(&world).await;
    let mut stream = world.open_short(4).await;
    assert_eq!(stream.capacity(), None);
    for _ in 0..2 {
        loss(&mut stream).await;
        stream.subscribe(subscribe_options(4)).await.unwrap();
    }
    assert_eq!(stream.capacity(), Some(1));
    let (delivery, acker) = next(&mut stream).await;
    assert!(delivery.unrepresentable().is_some(), "{delivery:?}");
    assert_eq!(stream.capacity(), Some(1));
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    world.publish("goes on").await;
    assert_eq!(next(&mut stream).await.0.payload(), "goes on");
    assert_eq!(stream.capacity(), None);
}

/// They are more than one search reads, because the message before them is not settled.
#[tokio::test]
async fn an_unreadable_message_is_found_behind_10_000_settled_ones() {
    const READABLE: usize = 10_001;
    let Some(world) = World::new().await else { return };
    let numbers: Vec<_> = (0..READABLE).collect();
    for numbers in numbers.chunks(500) {
        join_all(numbers.iter().map(|n| world.publish(n.to_string()))).await;
    }
    let mut stream = world.source().await.ack_wait(SHORT).unconfirmed_acks();
    stream.subscribe(subscribe_options(1000)).await.unwrap();
    let _held = next(&mut stream).await;
    for _ in 1..READABLE {
        next(&mut stream).await.1.ack().await.unwrap();
    }
    publish_unreadable(&world).await;
    let found = async {
        loop {
            match stream.next().await {
                Ok((delivery, acker)) if delivery.unrepresentable().is_some() => break acker.ack().await.unwrap(),
                Ok(_) => {}
                Err(_) => stream.subscribe(subscribe_options(1000)).await.unwrap(),
            }
        }
    };
    assert_eq!(timeout(2 * LONG, found).await.unwrap(), Settled::Sent);
}
