//! Refusals at the start, and their messages.

use std::time::Duration;

use crate::common;
use crate::common::{World, next, subscribe_options, url};
use idem_conformance::authority;
use idem_conformance::texts;
use idem_core::{DeliveryOrder, Error, ReplayWindow, Source, SubscribeOptions};
use idem_rabbitmq::RabbitMq;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

const SENTINEL: &str = "s3ntinel";

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// Returns the errors of `queue` and `declare` for the world's queue.
async fn refusals(world: &World) -> [String; 2] {
    let rabbit = world.rabbit().await;
    let errors = [rabbit.queue(&world.queue).await.unwrap_err(), rabbit.declare(&world.queue).await.unwrap_err()];
    errors.map(|error| {
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        error.to_string()
    })
}

#[tokio::test]
async fn a_classic_queue_is_refused() {
    for arguments in [&[][..], &[("x-dead-letter-exchange", text("it's")), ("x-max-priority", AMQPValue::LongInt(3))]] {
        let Some(world) = World::empty().await else { return };
        world.declare("classic", arguments).await;
        for error in refusals(&world).await {
            assert!(error.contains("not a quorum queue") && error.contains("x-queue-type=quorum"), "{error}");
            assert!(error.contains(&world.queue), "{error}");
        }
    }
}

#[tokio::test]
async fn a_queue_that_does_not_outlive_its_server_is_refused() {
    let Some(world) = World::empty().await else { return };
    for options in [
        QueueDeclareOptions { auto_delete: true, ..Default::default() },
        QueueDeclareOptions { durable: true, auto_delete: true, ..Default::default() },
        QueueDeclareOptions { durable: true, exclusive: true, ..Default::default() },
    ] {
        world.channel.queue_declare(world.queue.as_str().into(), options, FieldTable::default()).await.unwrap();
        for error in refusals(&world).await {
            assert!(error.contains("not a quorum queue"), "{error}");
        }
        world.delete().await;
    }
}

#[tokio::test]
async fn a_stream_is_refused() {
    let Some(world) = World::empty().await else { return };
    world.declare("stream", &[("x-max-age", text("1h"))]).await;
    for error in refusals(&world).await {
        assert!(error.contains("not a quorum queue"), "{error}");
    }
    world.delete().await;
}

#[tokio::test]
async fn a_requested_classic_queue_is_accepted_with_any_arguments() {
    let Some(world) = World::empty().await else { return };
    world
        .declare("classic", &[("x-max-priority", AMQPValue::LongInt(5)), ("x-dead-letter-exchange", text("it's"))])
        .await;
    world.publish("x").await;
    let mut queue = world.rabbit().await.classic_queue(&world.queue).await.unwrap();
    let refused = queue.subscribe(ordered(DeliveryOrder::Queue)).await.unwrap_err().to_string();
    assert!(refused.contains("classic queue") && refused.contains("quorum queue"), "{refused}");
    queue.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(next(&mut queue).await.0.payload(), "x");
}

#[tokio::test]
async fn every_other_queue_than_a_durable_classic_one_is_refused_as_such() {
    let Some(world) = World::empty().await else { return };
    let rabbit = world.rabbit().await;
    let absent = rabbit.classic_queue(&world.queue).await.unwrap_err().to_string();
    assert!(absent.contains("does not exist"), "{absent}");
    for (kind, arguments, remedy) in [
        ("quorum", &[][..], "use .queue("),
        ("stream", &[], "is a stream"),
        ("stream", &[("x-max-age", text("1h"))], "is a stream"),
    ] {
        world.declare(kind, arguments).await;
        let error = rabbit.classic_queue(&world.queue).await.unwrap_err();
        assert!(matches!(&error, Error::Config(text) if text.contains(remedy)), "{error:?}");
        world.delete().await;
    }
    for options in [
        QueueDeclareOptions { durable: true, auto_delete: true, ..Default::default() },
        QueueDeclareOptions { durable: true, exclusive: true, ..Default::default() },
    ] {
        world.channel.queue_declare(world.queue.as_str().into(), options, FieldTable::default()).await.unwrap();
        let error = rabbit.classic_queue(&world.queue).await.unwrap_err().to_string();
        assert!(error.contains("does not outlive") || error.contains("not a quorum queue"), "{error}");
        world.delete().await;
    }
}

#[tokio::test]
async fn a_quorum_queue_is_accepted_with_any_arguments() {
    let Some(world) = World::empty().await else { return };
    let arguments = [
        ("x-dead-letter-exchange", text("it's")),
        ("x-dead-letter-routing-key", text("")),
        ("x-max-length", AMQPValue::ShortInt(100)),
        ("x-overflow", text("reject-publish")),
        ("x-single-active-consumer", AMQPValue::Boolean(true)),
    ];
    world.declare("quorum", &arguments).await;
    let rabbit = world.rabbit().await;
    rabbit.declare(&world.queue).await.unwrap();
    let mut queue = rabbit.queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    queue.close().await;

    // The learned arguments no longer apply.
    world.delete().await;
    world.declare("quorum", &[("x-dead-letter-exchange", text("other"))]).await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    queue.close().await;
}

fn ordered(order: DeliveryOrder) -> SubscribeOptions {
    subscribe_options(4).with_order(order)
}

/// Connected by somebody who knows that no queue has a delivery limit, as RabbitMQ 4 demands.
async fn trusting(world: &World) -> RabbitMq {
    RabbitMq::options(&world.url).delivery_limit_by_policy().connect().await.unwrap()
}

#[tokio::test]
async fn an_order_by_queue_needs_a_single_active_consumer() {
    let Some(world) = World::empty().await else { return };
    for arguments in [&[][..], &[("x-single-active-consumer", AMQPValue::Boolean(false))]] {
        world.declare("quorum", arguments).await;
        for expected in ["x-single-active-consumer=true", "configure"] {
            let mut queue = match expected {
                "configure" => trusting(&world).await.queue_unverified(&world.queue).await.unwrap(),
                _ => world.rabbit().await.queue(&world.queue).await.unwrap(),
            };
            let refused = queue.subscribe(ordered(DeliveryOrder::Queue)).await.unwrap_err().to_string();
            assert!(refused.contains(expected) && refused.contains(&world.queue), "{refused}");
            // Nothing is left open, and a subscribe without an order succeeds.
            assert!(queue.next().await.is_err());
            queue.subscribe(subscribe_options(1)).await.unwrap();
            queue.close().await;
        }
        world.delete().await;
    }
}

#[tokio::test]
async fn a_queue_with_one_consumer_at_a_time_has_one_ordering_key() {
    let Some(world) = World::empty().await else { return };
    let arguments = [("x-dead-letter-exchange", text("")), ("x-single-active-consumer", AMQPValue::Boolean(true))];
    world.declare("quorum", &arguments).await;
    world.publish("a").await;
    world.publish("b").await;
    let rabbit = world.rabbit().await;
    for (order, key) in [(DeliveryOrder::Queue, Some(0)), (DeliveryOrder::None, None)] {
        for mut queue in [rabbit.queue(&world.queue).await.unwrap(), rabbit.declare(&world.queue).await.unwrap()] {
            queue.subscribe(ordered(order)).await.unwrap();
            for payload in ["a", "b"] {
                let (delivery, _) = next(&mut queue).await;
                assert_eq!((&delivery.payload()[..], delivery.ordering_key()), (payload.as_bytes(), key));
            }
            queue.close().await;
        }
    }
}

#[tokio::test]
async fn an_order_by_partition_or_key_is_refused() {
    let Some(world) = World::new().await else { return };
    let mut queue = world.rabbit().await.queue(&world.queue).await.unwrap();
    for (order, name) in [(DeliveryOrder::Partition, "Partition"), (DeliveryOrder::Key, "Key")] {
        let refused = queue.subscribe(ordered(order)).await.unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains("DeliveryOrder::Queue"), "{refused}");
    }
}

#[tokio::test]
async fn how_far_back_a_message_can_come_is_what_was_said() {
    let Some(world) = World::new().await else { return };
    let day = Duration::from_secs(86_400);
    let said = RabbitMq::options(&world.url).replay_window(day).connect().await.unwrap();
    assert_eq!(said.queue(&world.queue).await.unwrap().replay_window(), ReplayWindow::Within(day));
    assert_eq!(world.rabbit().await.queue(&world.queue).await.unwrap().replay_window(), ReplayWindow::Unknown);
}

#[tokio::test]
async fn a_queue_that_does_not_exist_is_refused_and_not_made() {
    let Some(world) = World::empty().await else { return };
    let rabbit = world.rabbit().await;
    for _ in 0..2 {
        for error in
            [rabbit.queue(&world.queue).await.unwrap_err(), rabbit.queue_unverified(&world.queue).await.unwrap_err()]
        {
            assert!(matches!(error, Error::Config(_)), "{error:?}");
            let error = error.to_string();
            assert!(error.contains("does not exist") && error.contains(".declare("), "{error}");
        }
    }
}

#[tokio::test]
async fn a_queue_can_be_taken_on_trust() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let mut queue = trusting(&world).await.queue_unverified(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    assert_eq!(next(&mut queue).await.0.payload(), "x");
}

#[tokio::test]
async fn a_name_that_no_queue_can_have_is_refused() {
    let Some(url) = url() else { return };
    let rabbit = RabbitMq::connect(url).await.unwrap();
    for name in ["".to_owned(), "q".repeat(256)] {
        let error = rabbit.declare(name).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
    }
}

/// The server's texts are limited to 255 bytes, so a long name truncates them.
#[tokio::test]
async fn a_queue_with_a_long_name_is_judged_or_left_to_the_user() {
    let Some(world) = World::empty().await else { return };
    let world = World { queue: format!("{:q<255}", world.queue), ..world };
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    world.channel.queue_declare(world.queue.as_str().into(), durable, FieldTable::default()).await.unwrap();
    for error in refusals(&world).await {
        assert!(error.contains("not a quorum queue"), "{error}");
    }
    world.delete().await;

    let mut queue = world.rabbit().await.declare(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    queue.close().await;
    world.delete().await;

    world.declare("quorum", &[("x-dead-letter-exchange", text("other"))]).await;
    for error in refusals(&world).await {
        assert!(error.contains("cannot determine whether") && error.contains(".queue_unverified("), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let Some(url) = url() else { return };
    let url = format!("amqp://someone:{SENTINEL}@{}/%2f", authority(&url));
    let error = RabbitMq::connect(url).await.unwrap_err();
    assert!(matches!(error, Error::Broker { .. }), "{error:?}");
    let said = texts(&error);
    assert!(!said.contains(SENTINEL), "{said}");
    assert!(said.contains("user `someone`") && said.contains("check user and password"), "{said}");
}

#[tokio::test]
async fn a_virtual_host_that_does_not_exist_is_refused() {
    let Some(url) = url() else { return };
    let (server, _) = url.split_at(url.find(authority(&url)).unwrap() + authority(&url).len());
    for (path, remedy) in [("/nowhere", "list_vhosts"), ("/", "write /%2f")] {
        let error = RabbitMq::connect(format!("{server}{path}")).await.unwrap_err();
        assert!(matches!(error, Error::Broker { .. }), "{error:?}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_named_without_the_password() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let error = RabbitMq::connect(format!("amqp://u:{SENTINEL}@127.0.0.1:{port}/shop")).await.unwrap_err();
    assert!(matches!(error, Error::Broker { .. }), "{error:?}");
    let said = texts(&error);
    assert!(!said.contains(SENTINEL), "{said}");
    assert!(said.contains(&format!("127.0.0.1:{port}")) && said.contains("virtual host `shop`"), "{said}");
    assert!(said.contains("check that the server runs"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn the_connection_to_a_silent_server_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        // Returns when the client has closed the connection.
        client.read_to_end(&mut Vec::new()).await
    });
    let error = RabbitMq::connect(format!("amqp://u:{SENTINEL}@127.0.0.1:{port}")).await.unwrap_err();
    let said = texts(&error);
    assert!(said.contains("no answer within 10 seconds") && !said.contains(SENTINEL), "{said}");
    tokio::time::resume();
    tokio::time::timeout(common::LONG, server).await.expect("the connection was left open").unwrap().unwrap();
}
