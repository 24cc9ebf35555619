//! Several queues as one source.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::relay::Relay;
use crate::common::{World, loss, next, subscribe_options};
use idem_conformance::texts;
use idem_core::{Acker, DeliveryOrder, Error, Source};
use idem_rabbitmq::{Queue, RabbitMq};
use lapin::types::AMQPValue;

/// The queues of two worlds as one source.
async fn both(rabbit: &RabbitMq, one: &World, two: &World) -> Queue {
    rabbit.queue(&one.queue).await.unwrap().and(rabbit.queue(&two.queue).await.unwrap()).unwrap()
}

async fn worlds() -> Option<(World, World)> {
    Some((World::new().await?, World::new().await?))
}

#[tokio::test]
async fn several_queues_come_by_one_connection_and_each_delivery_names_its_own() {
    let Some((one, two)) = worlds().await else { return };
    let relay = Relay::start(&one.url).await;
    let rabbit = RabbitMq::connect(relay.url(&one.url)).await.unwrap();
    let mut queue = both(&rabbit, &one, &two).await;
    let before = relay.connections();
    queue.subscribe(subscribe_options(4)).await.unwrap();
    assert_eq!(relay.connections(), before + 2, "one, and the short one that asks for the version");
    assert_eq!(queue.name(), format!("{}, {}", one.queue, two.queue));
    for world in [&one, &two] {
        world.publish(&world.queue).await;
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!((delivery.source(), &delivery.payload()[..]), (&*world.queue, world.queue.as_bytes()));
        acker.ack().await.unwrap();
    }
    let lags: BTreeMap<_, _> = queue.lag().unwrap().call().await.unwrap().into_iter().collect();
    assert_eq!(lags, BTreeMap::from([(one.queue.as_str().into(), 0), (two.queue.as_str().into(), 0)]));
}

#[tokio::test]
async fn each_queue_has_its_own_prefetch_and_they_take_turns() {
    let Some((one, two)) = worlds().await else { return };
    for n in 0..12 {
        one.publish(n.to_string()).await;
        two.publish(n.to_string()).await;
    }
    let mut queue = both(&one.rabbit().await, &one, &two).await;
    queue.subscribe(subscribe_options(10)).await.unwrap();
    // Nothing is settled: only ten of each are delivered.
    one.until_ready(2).await;
    two.until_ready(2).await;
    // An answer on this connection arrives after the deliveries that were sent before it.
    for _ in 0..5 {
        queue.lag().unwrap().call().await.unwrap();
    }
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(next(&mut queue).await);
    }
    let of_two = held.iter().filter(|(delivery, _)| delivery.source() == two.queue).count();
    assert!((3..=7).contains(&of_two), "{of_two} of 10 are of one queue, and there were ten of each");
    // Unsettled deliveries go back to their own queue, including those that were not handed out.
    for (_, acker) in held {
        acker.ack().await.unwrap();
    }
    queue.drain().await;
    queue.close().await;
    one.until_ready(12 - (10 - of_two as u32)).await;
    two.until_ready(12 - of_two as u32).await;
}

/// lapin closes the connection of all queues at a message that it cannot parse, and each queue is then read once without it.
#[tokio::test]
async fn an_unreadable_message_of_one_queue_costs_those_of_the_others_two_returns() {
    let Some((one, two)) = worlds().await else { return };
    let mut queue = both(&one.rabbit().await, &one, &two).await;
    queue.subscribe(subscribe_options(4)).await.unwrap();
    for n in 0..4 {
        two.publish(format!("two {n}")).await;
    }
    two.until_ready(0).await;
    one.publish_unreadable(&["bad"]).await;
    while queue.next().await.is_ok() {}
    one.until_ready(1).await;
    two.until_ready(4).await;

    queue.subscribe(subscribe_options(4)).await.unwrap();
    for n in 0..8 {
        one.publish(format!("one {n}")).await;
        two.publish(format!("two {}", n + 4)).await;
    }
    let mut seen = BTreeSet::new();
    while seen.len() < 21 {
        let (delivery, acker) = next(&mut queue).await;
        let text = String::from_utf8(delivery.payload().to_vec()).unwrap();
        assert_eq!(delivery.unrepresentable().is_some(), text == "bad");
        assert!(delivery.delivery_count().unwrap_or(0) <= 2, "{delivery:?}");
        assert!(text == "bad" || text.starts_with(if delivery.source() == one.queue { "one" } else { "two" }));
        assert!(seen.insert(text), "it came twice: {delivery:?}");
        acker.ack().await.unwrap();
    }
    // Enough messages have passed from each queue: both are consumed through lapin again, with a prefetch of four.
    for world in [&one, &two] {
        for _ in 0..5 {
            world.publish("more").await;
        }
    }
    let mut held = Vec::new();
    while held.len() < 8 {
        held.push(next(&mut queue).await);
    }
    one.until_ready(1).await;
    two.until_ready(1).await;
    let lags = queue.lag().unwrap().call().await.unwrap();
    assert!(lags.len() == 2 && lags.iter().all(|(_, ready)| *ready == 1), "{lags:?}");
}

#[tokio::test]
async fn in_an_order_each_queue_has_an_ordering_key_and_each_must_keep_it() {
    let (Some(one), Some(two)) = (World::empty().await, World::empty().await) else { return };
    one.declare("quorum", &[("x-single-active-consumer", AMQPValue::Boolean(true))]).await;
    two.declare("quorum", &[]).await;
    let ordered = subscribe_options(4).with_order(DeliveryOrder::Queue);
    let rabbit = one.rabbit().await;
    let mut queue = both(&rabbit, &one, &two).await;
    let refused = queue.subscribe(ordered.clone()).await.unwrap_err().to_string();
    assert!(refused.contains(&two.queue) && !refused.contains(&one.queue), "{refused}");
    assert!(refused.contains("x-single-active-consumer=true"), "{refused}");

    two.delete().await;
    two.declare("quorum", &[("x-single-active-consumer", AMQPValue::Boolean(true))]).await;
    queue.subscribe(ordered).await.unwrap();
    for (key, world) in [(0, &one), (1, &two)] {
        world.publish("x").await;
        let (delivery, _) = next(&mut queue).await;
        assert_eq!((delivery.source(), delivery.ordering_key()), (&*world.queue, Some(key)));
    }
}

#[tokio::test]
async fn a_queue_that_would_drop_messages_is_refused_by_its_own_name() {
    let Some((one, two)) = worlds().await else { return };
    let mut queue = both(&one.rabbit().await, &one, &two).await;
    two.delete().await;
    two.declare_as_is("quorum", &[("x-delivery-limit", AMQPValue::LongInt(5))]).await;
    let refused = queue.subscribe(subscribe_options(1)).await.unwrap_err().to_string();
    assert!(refused.contains(&two.queue) && !refused.contains(&one.queue), "{refused}");
    assert!(refused.contains("x-delivery-limit=5"), "{refused}");
}

#[tokio::test]
async fn a_queue_that_is_deleted_ends_the_source_by_its_own_name() {
    let Some((one, two)) = worlds().await else { return };
    let mut queue = both(&one.rabbit().await, &one, &two).await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    two.delete().await;
    let error = loss(&mut queue).await;
    let said = texts(error.as_ref());
    assert!(said.contains(&two.queue) && said.contains("the queue was deleted"), "{said}");
    two.declare("quorum", &[]).await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    two.publish("x").await;
    assert_eq!(next(&mut queue).await.0.source(), two.queue);
}

#[tokio::test]
async fn queues_of_two_connections_and_one_queue_twice_are_refused() {
    let Some((one, two)) = worlds().await else { return };
    let rabbit = one.rabbit().await;
    let elsewhere = two.rabbit().await.queue(&two.queue).await.unwrap();
    for other in [elsewhere, rabbit.queue(&one.queue).await.unwrap()] {
        let name = other.name().to_owned();
        let refused = rabbit.queue(&one.queue).await.unwrap().and(other).unwrap_err();
        assert!(matches!(&refused, Error::Config(text) if text.contains(&name)), "{refused:?}");
    }
}
