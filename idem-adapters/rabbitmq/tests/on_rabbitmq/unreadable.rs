//! Messages that lapin cannot parse.

use crate::common;
use crate::common::raw::{BAD_ID, Raw};
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
    assert!(delivery.unrepresentable().is_some_and(|why| why.contains("not UTF-8")), "{delivery:?}");
    assert_eq!((delivery.payload(), delivery.subject()), (&"x".into(), Some(&*world.queue)));
    assert!(delivery.redelivered());
    // The server adds a header with its delivery count.
    let list = delivery.headers().get("idem-amqp-properties").unwrap();
    assert!(list.ends_with(&BAD_ID[2..]), "{list:?}");
    ack(acker).await;
    queue.close().await;
    world.until_ready(0).await;
}

#[tokio::test]
async fn the_messages_beside_those_that_lapin_cannot_read_are_delivered() {
    let Some(world) = World::new().await else { return };
    // All messages are in the queue before the subscribe, so that all are prefetched with the unreadable ones.
    world.publish_each(0..2).await;
    world.publish_unreadable(&["bad", "bad"]).await;
    world.publish("4").await;
    let mut queue = world.open(5).await;
    at_the_message(&world, &mut queue, subscribe_options(5), 5).await;
    world.publish("5").await;
    let mut seen = Vec::new();
    for _ in 0..6 {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.unrepresentable().is_some(), delivery.payload() == "bad", "{delivery:?}");
        seen.push(String::from_utf8(delivery.payload().to_vec()).unwrap());
        ack(acker).await;
    }
    assert_eq!(seen, ["bad", "bad", "0", "1", "4", "5"]);
    queue.close().await;
    world.until_ready(0).await;
}

#[tokio::test]
async fn one_consumer_at_a_time_keeps_its_order() {
    let Some(world) = World::empty().await else { return };
    world.declare("quorum", &[("x-single-active-consumer", AMQPValue::Boolean(true))]).await;
    world.publish_unreadable(&["bad"]).await;
    world.publish_each(1..8).await;
    let ordered = |max_unsettled| subscribe_options(max_unsettled).with_order(DeliveryOrder::Queue);
    let mut queue = world.rabbit().await.queue(&world.queue).await.unwrap();
    queue.subscribe(ordered(3)).await.unwrap();
    at_the_message(&world, &mut queue, ordered(3), 8).await;
    for n in 0..8_u32 {
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(*delivery.payload(), if n == 0 { "bad".to_owned() } else { n.to_string() });
        assert_eq!(delivery.ordering_key(), Some(0), "{n}");
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
        (&[0x80, 0, 1, 0xFF], "content type"),
        (&[0x04, 0, 1, 0xFE], "correlation id"),
        (&[0, 0x20, 2, 0xFD, b'a'], "type"),
        (&[0x20, 0, 0, 0, 0, 4, 2, b'h', 0xFC, b'V'], "the name of a header"),
        (&[0x20, 0, 0, 0, 0, 10, 1, b'h', b'F', 0, 0, 0, 3, 1, 0xFB, b'V'], "a name inside a header"),
    ];
    for (list, part) in lists {
        raw.publish(&world.queue, list, part.as_bytes()).await;
    }
    raw.publish_by(&exchange, b"k\xFA", &[0, 0], b"the routing key").await;
    let mut queue = world.open(10).await;
    at_the_message(&world, &mut queue, subscribe_options(10), 6).await;
    for _ in 0..6 {
        let (delivery, acker) = next(&mut queue).await;
        assert!(delivery.unrepresentable().is_some(), "{:?}", delivery.payload());
        ack(acker).await;
    }
    queue.close().await;
    world.until_ready(0).await;
}

#[tokio::test]
async fn a_message_that_lapin_cannot_read_and_that_is_released_comes_again() {
    let Some(world) = World::new().await else { return };
    world.publish_unreadable(&["x"]).await;
    let mut queue = world.open(4).await;
    at_the_message(&world, &mut queue, subscribe_options(4), 1).await;
    let (_, acker) = next(&mut queue).await;
    assert_eq!(acker.release().await.unwrap(), Settled::Sent);
    at_the_message(&world, &mut queue, subscribe_options(4), 1).await;
    let (delivery, held) = next(&mut queue).await;
    assert_eq!(delivery.payload(), "x");
    queue.drain().await;
    loss(&mut queue).await;
    // A delivery that was handed out can still be settled.
    ack(held).await;
    queue.close().await;
    world.until_ready(0).await;
}

/// The server closes a connection that is silent for two heartbeats, unless it was asked for none.
#[tokio::test]
async fn a_message_that_lapin_cannot_read_is_kept_while_its_dead_letter_waits() {
    let Some(world) = World::new().await else { return };
    let rabbit = RabbitMq::connect(format!("{}?heartbeat=1", world.url)).await.unwrap();
    let mut queue = rabbit.queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(4)).await.unwrap();
    world.publish_unreadable(&["x"]).await;
    at_the_message(&world, &mut queue, subscribe_options(4), 1).await;
    let (_, held) = next(&mut queue).await;
    assert!(tokio::time::timeout(std::time::Duration::from_secs(5), queue.next()).await.is_err());
    world.until_ready(0).await;
    ack(held).await;
    queue.close().await;
    world.until_ready(0).await;
}
