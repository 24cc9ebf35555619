//! Messages that lapin cannot parse.

use crate::common;
use crate::common::raw::{BAD_ID, Raw};
use crate::common::relay::Relay;
use crate::common::{World, loss, next, subscribe_options};
use idem_conformance::texts;
use idem_core::{Acker, DeliveryOrder, Settled, Source, SubscribeOptions};
use idem_rabbitmq::{Queue, RabbitMq, RabbitMqAcker};
use lapin::ExchangeKind;
use lapin::types::AMQPValue;

/// Takes deliveries until lapin closes the connection at a message that it cannot parse. Waits until `all` messages are
/// ready again, and then resubscribes. A consumer that subscribes earlier receives later messages first.
async fn at_the_message(world: &World, queue: &mut Queue, options: SubscribeOptions, all: u32) {
    let error = loop {
        match tokio::time::timeout(common::LONG, queue.next()).await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(texts(error.as_ref()).contains("not UTF-8"), "{}", texts(error.as_ref()));
    world.until_ready(all).await;
    queue.subscribe(options).await.unwrap();
}

async fn ack(acker: RabbitMqAcker) {
    assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
}

#[tokio::test]
async fn a_message_that_lapin_cannot_read_is_a_dead_letter_from_the_start() {
    let Some(world) = World::new().await else { return };
    let mut queue = world.open(4).await;
    world.publish_unreadable(&["x"]).await;
    let error = loss(&mut queue).await.to_string();
    assert!(error.contains("not UTF-8") && error.contains(&world.queue), "{error}");
    queue.subscribe(subscribe_options(4)).await.unwrap();
    let (delivery, acker) = next(&mut queue).await;
    assert_eq!(delivery.unrepresentable(), Some("message id is not UTF-8: its bytes are fffe."));
    assert_eq!((delivery.payload(), delivery.message_id()), (&"x".into(), Some("\u{fffd}\u{fffd}")));
    assert!(delivery.redelivered());
    // The server adds a header with its delivery count.
    let list = delivery.headers().get("idem-amqp-properties").unwrap();
    assert!(list.ends_with(&BAD_ID[2..]), "{list:?}");
    ack(acker).await;
    queue.close().await;
    world.until_ready(0).await;
}

/// Everything prefetched is returned with the connection, and each return counts against a delivery limit.
#[tokio::test]
async fn after_a_message_that_lapin_cannot_read_one_at_a_time_is_taken() {
    let Some(world) = World::new().await else { return };
    // All messages are in the queue before the subscribe, so that all are prefetched with the unreadable one.
    for n in 0..2 {
        world.publish(n.to_string()).await;
    }
    world.publish_unreadable(&["bad"]).await;
    world.publish("3").await;
    let mut queue = world.open(4).await;
    at_the_message(&world, &mut queue, subscribe_options(4), 4).await;

    // More messages follow the returned ones; lapin cannot parse some of them.
    world.publish("4").await;
    world.publish_unreadable(&["bad", "bad"]).await;
    for n in 7..20 {
        world.publish(n.to_string()).await;
    }
    let mut unreadable = 0;
    for n in 0..20_u32 {
        let (delivery, acker) = next(&mut queue).await;
        let bad = matches!(n, 2 | 5 | 6);
        assert_eq!(delivery.unrepresentable().is_some(), bad, "{n}");
        assert_eq!(*delivery.payload(), if bad { "bad".to_owned() } else { n.to_string() });
        assert_eq!((delivery.redelivered(), delivery.delivery_count()), (n < 4, (n < 4).then_some(1)), "{n}");
        unreadable += u32::from(bad);
        // One at a time until as many messages have passed after the last unreadable one as were prefetched, then four.
        world.until_ready(if n <= 10 { 19 - n } else { 16_u32.saturating_sub(n) }).await;
        ack(acker).await;
    }
    assert_eq!(unreadable, 3);
    queue.close().await;
    world.until_ready(0).await;
}

#[tokio::test]
async fn one_consumer_at_a_time_keeps_its_order() {
    let Some(world) = World::empty().await else { return };
    world.declare("quorum", &[("x-single-active-consumer", AMQPValue::Boolean(true))]).await;
    world.publish_unreadable(&["bad"]).await;
    for n in 1..8 {
        world.publish(n.to_string()).await;
    }
    let ordered = |max_unsettled| subscribe_options(max_unsettled).with_order(DeliveryOrder::Queue);
    let mut queue = world.rabbit().await.queue(&world.queue).await.unwrap();
    queue.subscribe(ordered(3)).await.unwrap();
    at_the_message(&world, &mut queue, ordered(3), 8).await;
    let mut held = Vec::new();
    for n in 0..8_u32 {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(*delivery.payload(), if n == 0 { "bad".to_owned() } else { n.to_string() });
        assert_eq!((delivery.ordering_key(), delivery.redelivered()), (Some(0), n < 3), "{n}");
        // Hold deliveries of one connection only: the first four came one at a time, and the others are prefetched
        // again.
        if n < 4 {
            ack(acker).await;
        } else {
            held.push(acker);
        }
        if held.len() == 3 {
            ack(held.remove(0)).await;
        }
    }
    for acker in held {
        ack(acker).await;
    }
    queue.close().await;
    world.until_ready(0).await;
}

#[tokio::test]
async fn a_message_is_taken_out_whichever_part_is_not_utf_8() {
    let Some(world) = World::new().await else { return };
    let exchange = format!("{}-all", world.queue);
    world.exchange(&exchange, ExchangeKind::Fanout, "").await;
    let mut raw = Raw::connect(&world.url).await;
    let lists: [(&[u8], &str); 5] = [
        (&[0x80, 0, 1, 0xFF], "content type is not UTF-8: its bytes are ff."),
        (&[0x04, 0, 1, 0xFE], "correlation id is not UTF-8: its bytes are fe."),
        (&[0, 0x20, 2, 0xFD, b'a'], "type is not UTF-8: its bytes are fd61."),
        (&[0x20, 0, 0, 0, 0, 4, 2, b'h', 0xFC, b'V'], "the name of a header is not UTF-8: its bytes are 68fc."),
        (
            &[0x20, 0, 0, 0, 0, 10, 1, b'h', b'F', 0, 0, 0, 3, 1, 0xFB, b'V'],
            "the header \"h\" holds a name that is not UTF-8.",
        ),
    ];
    for (list, why) in lists {
        raw.publish(&world.queue, list, why.as_bytes()).await;
    }
    let why = "the routing key is not UTF-8: its bytes are 6bfa.";
    raw.publish_by(&exchange, b"k\xFA", &[0, 0], why.as_bytes()).await;
    let mut queue = world.open(10).await;
    at_the_message(&world, &mut queue, subscribe_options(10), 6).await;
    for _ in 0..6 {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.unrepresentable().map(str::as_bytes), Some(&delivery.payload()[..]));
        ack(acker).await;
    }
    queue.close().await;
    world.until_ready(0).await;
}

#[tokio::test]
async fn an_ack_of_before_the_loss_of_the_second_connection_is_stale() {
    let Some(world) = World::new().await else { return };
    let relay = Relay::start(&world.url).await;
    world.publish_unreadable(&["x"]).await;
    let mut queue = world.open_through(&relay, 4).await;
    at_the_message(&world, &mut queue, subscribe_options(4), 1).await;
    let (delivery, old) = next(&mut queue).await;
    assert!(delivery.unrepresentable().is_some() && old.is_live());
    relay.cut();
    loss(&mut queue).await;
    assert!(!old.is_live());
    queue.subscribe(subscribe_options(4)).await.unwrap();
    let (delivery, new) = next(&mut queue).await;
    assert!(delivery.unrepresentable().is_some());
    assert_eq!(old.ack().await.unwrap(), Settled::Stale);
    world.until_ready(0).await;
    ack(new).await;
    queue.close().await;
    world.until_ready(0).await;
}

#[tokio::test]
async fn the_second_connection_is_drained_and_released_as_the_first() {
    let Some(world) = World::new().await else { return };
    world.publish_unreadable(&["x"]).await;
    world.publish("y").await;
    let mut queue = world.open(4).await;
    at_the_message(&world, &mut queue, subscribe_options(4), 2).await;
    let (_, acker) = next(&mut queue).await;
    assert_eq!(acker.release().await.unwrap(), Settled::Sent);
    let (_, held) = next(&mut queue).await;
    queue.drain().await;
    loss(&mut queue).await;
    // A delivery that was handed out can still be settled.
    assert!(held.is_live());
    ack(held).await;
    world.until_ready(1).await;
    queue.close().await;
    world.until_ready(1).await;
}

#[tokio::test]
async fn a_queue_that_is_deleted_meanwhile_fails_next() {
    let Some(world) = World::new().await else { return };
    world.publish_unreadable(&["x"]).await;
    let mut queue = world.open(4).await;
    at_the_message(&world, &mut queue, subscribe_options(4), 1).await;
    let (_, acker) = next(&mut queue).await;
    ack(acker).await;
    world.delete().await;
    let error = loss(&mut queue).await;
    assert!(texts(error.as_ref()).contains("cancelled"), "{}", texts(error.as_ref()));
}

/// At the end of its one-at-a-time phase, a consumer hands over to a waiting process, and returns nothing.
#[tokio::test]
async fn the_end_of_one_at_a_time_returns_nothing_to_the_next_consumer() {
    let Some(world) = World::empty().await else { return };
    world.declare("quorum", &[("x-single-active-consumer", AMQPValue::Boolean(true))]).await;
    world.publish_unreadable(&["bad"]).await;
    for n in 1..6 {
        world.publish(n.to_string()).await;
    }
    let ordered = subscribe_options(2).with_order(DeliveryOrder::Queue);
    let mut queue = world.rabbit().await.queue(&world.queue).await.unwrap();
    queue.subscribe(ordered.clone()).await.unwrap();
    at_the_message(&world, &mut queue, ordered.clone(), 6).await;
    let mut other = world.rabbit().await.queue(&world.queue).await.unwrap();
    other.subscribe(ordered).await.unwrap();
    for payload in ["bad", "1", "2"] {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.payload(), payload);
        ack(acker).await;
    }
    for payload in ["3", "4", "5"] {
        let (delivery, acker) = tokio::select! {
            taken = next(&mut other) => taken,
            taken = queue.next() => panic!("the first consumer still has its turn: {:?}", taken.map(|(delivery, _)| delivery)),
        };
        assert_eq!((delivery.payload(), delivery.redelivered()), (&payload.into(), false));
        ack(acker).await;
    }
    other.close().await;
    queue.close().await;
    world.until_ready(0).await;
}

/// The server closes a connection that is silent for two heartbeats, and so does the client.
#[tokio::test]
async fn the_second_connection_is_kept_alive_while_there_is_nothing_to_do() {
    let Some(world) = World::new().await else { return };
    let rabbit = RabbitMq::connect(format!("{}?heartbeat=1", world.url)).await.unwrap();
    let mut queue = rabbit.queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(4)).await.unwrap();
    world.publish_unreadable(&["x"]).await;
    at_the_message(&world, &mut queue, subscribe_options(4), 1).await;
    let (_, held) = next(&mut queue).await;
    assert!(tokio::time::timeout(std::time::Duration::from_secs(5), queue.next()).await.is_err());
    assert!(held.is_live());
    ack(held).await;
    world.publish("y").await;
    let (delivery, acker) = next(&mut queue).await;
    assert_eq!((delivery.payload(), delivery.redelivered()), (&"y".into(), false));
    ack(acker).await;
    queue.close().await;
    world.until_ready(0).await;
}
