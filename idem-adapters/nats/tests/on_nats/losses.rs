//! Lost connections, consumers, streams and servers.

use std::time::Duration;

use crate::common::server::Server;
use crate::common::{LONG, SHORT, World, loss, next, nothing_for, subscribe_options};
use idem_conformance::Proxy;
use idem_conformance::texts;
use idem_core::{Acker, Settled, Source};
use idem_nats::Start;
use tokio::time::timeout;

/// async-nats would reconnect by itself before the loss is noticed.
#[tokio::test]
async fn a_loss_that_is_over_at_once_fails_next_at_once_all_the_same() {
    let Some(world) = World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    let mut stream = world.open_through(&relay, 4).await;
    relay.cut();
    let lost = timeout(Duration::from_secs(3), loss(&mut stream)).await;
    assert!(lost.is_ok(), "sooner than by the heartbeats that are missing");
    world.publish("x").await;
    loss(&mut stream).await;
    stream.subscribe(subscribe_options(4)).await.unwrap();
    assert_eq!(next(&mut stream).await.0.payload(), "x");
}

#[tokio::test]
async fn a_connection_that_says_nothing_any_more_is_noticed() {
    let Some(world) = World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    let mut stream = world.open_through(&relay, 4).await;
    relay.hold(true);
    let error = loss(&mut stream).await;
    assert!(texts(error.as_ref()).contains("no heartbeats"), "{}", texts(error.as_ref()));
}

#[tokio::test]
async fn an_ack_waits_for_the_next_connection() {
    let Some((world, relay, mut stream, acker)) = World::delivered_through(4).await else { return };
    relay.refuse(true);
    loss(&mut stream).await;
    let ack = tokio::spawn(acker.ack());
    stream.subscribe(subscribe_options(4)).await.unwrap_err();
    assert!(!ack.is_finished());
    relay.refuse(false);
    stream.subscribe(subscribe_options(4)).await.unwrap();
    assert_eq!(timeout(LONG, ack).await.unwrap().unwrap().unwrap(), Settled::Confirmed);
    world.until(0, 0).await;
}

#[tokio::test]
async fn a_release_without_a_connection_fails_at_once_and_is_not_sent_later() {
    let Some((_world, relay, mut stream, acker)) = World::delivered_through(1).await else { return };
    relay.refuse(true);
    loss(&mut stream).await;
    assert!(timeout(SHORT, acker.release()).await.unwrap().is_err());
    relay.refuse(false);
    stream.subscribe(subscribe_options(1)).await.unwrap();
    // It is redelivered only at the end of its ack wait.
    assert!(next(&mut stream).await.0.redelivered());
}

#[tokio::test]
async fn deliveries_buffered_before_the_loss_are_handed_out_or_redelivered_at_once() {
    let Some(world) = World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    world.publish_each(0..5).await;
    let mut stream = world.source().await;
    stream.subscribe(subscribe_options(5)).await.unwrap();
    drop(stream);
    // The ack wait is 30 seconds; nothing here waits that long.
    let mut stream = idem_nats::Nats::connect(relay.address()).await.unwrap().stream(&world.stream).await.unwrap();
    world.publish_each(5..10).await;
    stream.subscribe(subscribe_options(5)).await.unwrap();
    let mut held = vec![next(&mut stream).await];
    relay.cut();
    while let Ok(Ok(delivery)) = timeout(LONG, stream.next()).await {
        held.push(delivery);
    }
    for (_, acker) in held.drain(..).skip(1) {
        drop(acker);
    }
    stream.subscribe(subscribe_options(5)).await.unwrap();
    for _ in 0..4 {
        held.push(next(&mut stream).await);
    }
}

#[tokio::test]
async fn a_deleted_consumer_fails_next_and_is_recreated() {
    let Some((world, mut stream, acker)) = World::delivered(4).await else { return };
    world.delete_consumer().await;
    loss(&mut stream).await;
    loss(&mut stream).await;
    // Only the creation time distinguishes the two consumers.
    tokio::time::sleep(SHORT).await;
    stream.subscribe(subscribe_options(4)).await.unwrap();
    assert!(!acker.is_live());
    let (delivery, _new) = next(&mut stream).await;
    assert_eq!(delivery.payload(), "a");
    // The number still refers to the same message.
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    assert_eq!(world.info().await.num_ack_pending, 0);
}

#[tokio::test]
async fn a_consumer_that_starts_with_what_is_new_leaves_out_nothing_when_it_is_recreated() {
    let Some(world) = World::new().await else { return };
    world.publish("old").await;
    let mut stream = world.source().await.start(Start::New);
    stream.subscribe(subscribe_options(4)).await.unwrap();
    world.publish("first").await;
    next(&mut stream).await.1.ack().await.unwrap();
    world.delete_consumer().await;
    loss(&mut stream).await;
    world.publish("meanwhile").await;
    stream.subscribe(subscribe_options(4)).await.unwrap();
    let mut seen = Vec::new();
    while seen.last().is_none_or(|last| last != "meanwhile") {
        seen.push(next(&mut stream).await.0.payload().clone());
    }
    assert_eq!(seen, ["first", "meanwhile"]);
}

#[tokio::test]
async fn a_deleted_stream_fails_next_and_is_refused_by_name() {
    let Some(world) = World::new().await else { return };
    let mut stream = world.open(4).await;
    world.delete().await;
    loss(&mut stream).await;
    let error = stream.subscribe(subscribe_options(4)).await.unwrap_err().to_string();
    assert!(error.contains("does not exist") && error.contains(&world.stream), "{error}");
}

#[tokio::test]
async fn opening_again_keeps_what_was_handed_out_and_releases_what_was_not() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..3).await;
    let mut stream = world.open(3).await;
    let (_, first) = next(&mut stream).await;
    drop(next(&mut stream).await);
    stream.subscribe(subscribe_options(3)).await.unwrap();
    let mut again = [next(&mut stream).await.0, next(&mut stream).await.0].map(|delivery| delivery.payload().clone());
    again.sort();
    assert_eq!(again, ["1", "2"]);
    assert!(first.is_live());
    assert_eq!(first.ack().await.unwrap(), Settled::Confirmed);
    nothing_for(&mut stream, Duration::from_millis(100)).await;
}

#[tokio::test]
async fn draining_and_closing_after_a_loss_ends() {
    let Some(world) = World::new().await else { return };
    let relay = Proxy::start(&world.url).await;
    world.publish("x").await;
    let mut stream = world.open_through(&relay, 4).await;
    let _held = next(&mut stream).await;
    relay.refuse(true);
    timeout(LONG, async {
        stream.drain().await;
        stream.close().await;
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_server_that_was_stopped_or_killed_goes_on_where_it_was() {
    for gently in [true, false] {
        let Some(mut server) = Server::start("jetstream: {}") else { return };
        let world = World::at(server.url()).await;
        world.make(|_| {}).await;
        world.publish_each(0..3).await;
        let mut stream = world.source().await.ack_wait(SHORT * 5);
        stream.subscribe(subscribe_options(2)).await.unwrap();
        next(&mut stream).await.1.ack().await.unwrap();
        let (_, held) = next(&mut stream).await;
        world.until(0, 2).await;
        server.stop(gently);
        // Messages that it sent before are still delivered.
        let mut after = Vec::new();
        while let Ok(Ok(delivery)) = timeout(LONG, stream.next()).await {
            after.push(delivery);
        }
        stream.subscribe(subscribe_options(2)).await.unwrap_err();
        server.again();
        stream.subscribe(subscribe_options(2)).await.unwrap();
        // A killed server may have forgotten which messages it delivered, and then does not respond.
        for acker in [held].into_iter().chain(after.into_iter().map(|(_, acker)| acker)) {
            let answer = acker.ack().await;
            assert!(matches!(answer, Ok(Settled::Confirmed)) || !gently && answer.is_err(), "{answer:?}");
        }
        let world = World { stream: world.stream, ..World::at(server.url()).await };
        world.publish("3").await;
        if gently {
            let (delivery, acker) = next(&mut stream).await;
            assert_eq!(delivery.payload(), "3");
            acker.ack().await.unwrap();
        }
        // It may also have forgotten acks.
        let take = async {
            loop {
                let _ = next(&mut stream).await.1.ack().await;
            }
        };
        tokio::select! {
            () = world.until(0, 0) => {}
            () = take => {}
        }
    }
}
