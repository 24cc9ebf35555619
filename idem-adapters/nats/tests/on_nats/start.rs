//! Errors at startup and their messages, and where a consumer starts.

use std::time::{Duration, SystemTime};

use crate::common;
use crate::common::server::Server;
use crate::common::{World, next, refusal, subscribe_options, url};
use async_nats::jetstream::stream::RetentionPolicy;
use idem_conformance::authority;
use idem_conformance::texts;
use idem_core::{Acker, DeliveryOrder, Error, ReplayWindow, Source, SubscribeOptions};
use idem_nats::{Nats, Start};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

const SENTINEL: &str = "s3ntinel";

#[tokio::test]
async fn a_stream_that_does_not_exist_is_refused_and_not_made() {
    let Some(world) = World::empty().await else { return };
    for _ in 0..2 {
        let error = world.nats().await.stream(&world.stream).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.contains("does not exist") && error.contains(&world.stream), "{error}");
    }
}

#[tokio::test]
async fn a_name_that_nats_does_not_take_is_refused() {
    let Some(world) = World::new().await else { return };
    for name in ["", "a.b", "a b", "*"] {
        let error = world.nats().await.stream(name).await.unwrap_err().to_string();
        assert!(error.contains("give the name of an existing stream"), "{error}");
        let error = refusal(world.source().await, SubscribeOptions::new(name, 1)).await;
        assert!(error.contains(".durable(..)"), "{error}");
    }
    let mut stream = world.source().await.durable("billing");
    stream.subscribe(SubscribeOptions::new("billing.v2", 1)).await.unwrap();
    assert_eq!(world.info().await.name, "billing");
}

#[tokio::test]
async fn an_order_that_jetstream_cannot_keep_is_refused() {
    let Some(world) = World::new().await else { return };
    for order in [DeliveryOrder::Partition, DeliveryOrder::Key] {
        let error = refusal(world.source().await, subscribe_options(1).with_order(order)).await;
        assert!(error.contains("DeliveryOrder::Queue") && error.contains(&format!("{order:?}")), "{error}");
    }
}

#[tokio::test]
async fn a_queues_order_needs_a_consumer_that_hands_out_one_at_a_time() {
    let Some(world) = World::new().await else { return };
    let ordered = || subscribe_options(4).with_order(DeliveryOrder::Queue);
    world.source().await.subscribe(ordered()).await.unwrap();
    assert_eq!(world.info().await.config.max_ack_pending, 1);
    let error = refusal(world.source().await, subscribe_options(4)).await;
    assert!(error.contains("max_ack_pending: is 1, must be 4 or more"), "{error}");

    world.delete_consumer().await;
    world.source().await.subscribe(subscribe_options(4)).await.unwrap();
    let error = refusal(world.source().await, ordered()).await;
    assert!(error.contains("max_ack_pending: is -1, must be 1 (for DeliveryOrder::Queue)"), "{error}");
    world.source().await.reconcile().subscribe(ordered()).await.unwrap();
}

#[tokio::test]
async fn a_new_consumer_begins_where_it_was_told_to() {
    let Some(world) = World::new().await else { return };
    world.publish_each(1..=3).await;
    let third = world.jetstream.get_stream(&world.stream).await.unwrap().get_raw_message(3).await.unwrap();
    let third = SystemTime::from(third.time);
    for (name, start, first) in
        [("a", Start::All, "1"), ("b", Start::Sequence(2), "2"), ("c", Start::Time(third), "3"), ("d", Start::New, "4")]
    {
        let mut stream = world.source().await.durable(name).start(start);
        stream.subscribe(subscribe_options(1)).await.unwrap();
        if start == Start::New {
            world.publish("4").await;
        }
        let (delivery, acker) = next(&mut stream).await;
        assert_eq!(delivery.payload(), first);
        acker.ack().await.unwrap();
        stream.close().await;
        // It does not affect an existing consumer.
        world.source().await.durable(name).start(Start::Sequence(1)).subscribe(subscribe_options(1)).await.unwrap();
    }
}

/// What was published since the consumer was removed would be skipped.
#[tokio::test]
async fn a_start_at_new_messages_is_refused_if_the_consumer_of_a_known_worker_is_gone() {
    let Some(world) = World::new().await else { return };
    world.publish("meanwhile").await;
    let known = || subscribe_options(1).with_history(true);
    let error = refusal(world.source().await.start(Start::New), known()).await;
    for remedy in ["Start::All", "Start::Time", "nats consumer add", "`billing`", &world.stream] {
        assert!(error.contains(remedy), "{error}");
    }
    let stream = world.jetstream.get_stream(&world.stream).await.unwrap();
    assert_eq!(stream.cached_info().state.consumer_count, 0, "none was made");
    let all = world.source().await;
    all.start(Start::All).subscribe(known()).await.unwrap();
    // Where it exists, it is used.
    world.source().await.start(Start::New).subscribe(known()).await.unwrap();
}

#[tokio::test]
async fn the_replay_window_is_the_age_limit_of_the_stream() {
    for (age, expected) in [
        (Duration::ZERO, ReplayWindow::Unlimited),
        (Duration::from_secs(3600), ReplayWindow::Within(Duration::from_secs(3600))),
    ] {
        let Some(world) = World::empty().await else { return };
        world.make(|config| config.max_age = age).await;
        let mut stream = world.source().await;
        assert_eq!(stream.replay_window(), ReplayWindow::Unknown);
        stream.subscribe(subscribe_options(1)).await.unwrap();
        assert_eq!(stream.replay_window(), expected);
        world.delete().await;
    }
}

#[tokio::test]
async fn a_limit_that_deletes_unhandled_messages_is_named_and_so_is_what_it_has_deleted() {
    let Some(world) = World::empty().await else { return };
    world.make(|config| config.max_messages = 2).await;
    let (text, subscriber) = idem_conformance::captured();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut stream = world.open(1).await;
    stream.close().await;
    let log = text.to_string();
    for part in ["WARN", &world.stream, "max_age of 600s", "max_msgs of 2", "`discard: new`"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("ERROR"), "{log}");
    world.publish_each(["a", "b", "c", "d", "e"]).await;
    stream.subscribe(subscribe_options(1)).await.unwrap();
    let log = text.to_string().split_off(log.len());
    let is_it = |line: &str| ["ERROR", "from=1 to=3", "deleted before"].iter().all(|part| line.contains(part));
    assert!(log.lines().any(is_it), "{log}");
    stream.close().await;
    // What went before a consumer was created is none of its messages.
    let before = text.to_string().len();
    for (name, start) in [("a", Start::All), ("b", Start::New), ("c", Start::Sequence(2))] {
        world.source().await.durable(name).start(start).subscribe(subscribe_options(1)).await.unwrap();
    }
    let log = text.to_string().split_off(before);
    assert!(!log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn a_recreated_stream_is_an_error_in_the_log() {
    let Some(world) = World::new().await else { return };
    let mut stream = world.open(1).await;
    world.delete().await;
    world.make(|_| {}).await;
    let (text, subscriber) = idem_conformance::captured();
    let _guard = tracing::subscriber::set_default(subscriber);
    stream.subscribe(subscribe_options(1)).await.unwrap();
    let log = text.to_string();
    assert!(log.lines().any(|line| line.contains("ERROR") && line.contains("deleted and recreated")), "{log}");
}

#[tokio::test]
async fn every_retention_is_taken() {
    for retention in [RetentionPolicy::Interest, RetentionPolicy::WorkQueue, RetentionPolicy::Limits] {
        let Some(world) = World::empty().await else { return };
        world.make(|config| config.retention = retention).await;
        let mut stream = world.open(1).await;
        world.publish("x").await;
        next(&mut stream).await.1.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_without_jetstream_is_refused() {
    let Some(server) = Server::start("") else { return };
    let error = Nats::connect(server.url()).await.unwrap().stream("ORDERS").await.unwrap_err().to_string();
    assert!(error.contains("-js"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_away_is_named_without_the_password() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = Nats::connect(format!("nats://u:{SENTINEL}@127.0.0.1:{port}")).await.unwrap_err();
    assert!(matches!(error, Error::Broker { .. }), "{error:?}");
    let said = texts(&error);
    assert!(!said.contains(SENTINEL), "{said}");
    assert!(said.contains(&format!("127.0.0.1:{port}")) && said.contains("user `u`"), "{said}");
    assert!(said.contains("check that the server runs"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn the_connection_to_a_silent_server_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        // Returns when the client closes the connection.
        client.read_to_end(&mut Vec::new()).await
    });
    let error = Nats::connect(format!("nats://u:{SENTINEL}@127.0.0.1:{port}")).await.unwrap_err();
    let said = texts(&error);
    assert!(said.contains("check that the server runs") && !said.contains(SENTINEL), "{said}");
    tokio::time::resume();
    tokio::time::timeout(common::LONG, server).await.expect("the connection was left open").unwrap().unwrap();
}

#[tokio::test]
async fn one_server_of_several_is_enough() {
    let Some(url) = url() else { return };
    let away = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    Nats::connect(format!("nats://127.0.0.1:{away},{}", authority(&url))).await.unwrap();
}
