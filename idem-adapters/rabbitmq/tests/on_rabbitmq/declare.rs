//! Arguments and bindings of queues, and arguments of consumers.

use crate::common::{World, loss, next, subscribe_options};
use idem_core::{Acker, DeliveryOrder, Error, Source};
use idem_rabbitmq::{Argument, Declare};
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, ExchangeDeclareOptions, ExchangeDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, ExchangeKind};

/// Declares the world's queue.
async fn declared(world: &World) -> Declare {
    world.rabbit().await.declare(&world.queue)
}

async fn refusal(declare: Declare) -> String {
    let error = declare.await.unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_queue_is_declared_with_the_arguments_that_are_asked_for() {
    let Some(world) = World::empty().await else { return };
    let mut queue = declared(&world).await.argument("x-single-active-consumer", true).await.unwrap();
    let ordered = subscribe_options(1).with_order(DeliveryOrder::Queue);
    queue.subscribe(ordered.clone()).await.unwrap();
    queue.close().await;
    // An existing queue may have more arguments, and its own are used for the order check.
    let mut queue = declared(&world).await.await.unwrap();
    queue.subscribe(ordered).await.unwrap();
    queue.close().await;
}

#[tokio::test]
async fn another_value_than_the_queue_has_is_refused() {
    let Some(world) = World::empty().await else { return };
    for length in [Argument::from(10), Argument::from(10_i64)] {
        let declared = declared(&world).await.argument("x-max-length", length);
        declared.argument("x-overflow", "reject-publish").await.unwrap();
    }
    for (name, value) in [("x-max-length", Argument::from(11)), ("x-message-ttl", Argument::from(5))] {
        let refused = refusal(declared(&world).await.may_delete_unprocessed().argument(name, value)).await;
        assert!(refused.contains(name) && refused.contains(&world.queue), "{refused}");
        assert!(refused.contains("cannot be changed"), "{refused}");
    }
}

#[tokio::test]
async fn arguments_that_no_quorum_queue_can_have_are_refused() {
    let Some(world) = World::empty().await else { return };
    let refused = refusal(declared(&world).await.argument("x-max-priority", 3)).await;
    assert!(refused.contains("x-max-priority") && !refused.contains("is not a quorum queue"), "{refused}");
    for (name, value) in [("x-queue-type", Argument::from("classic")), ("x-delivery-limit", Argument::from(5))] {
        let refused = refusal(declared(&world).await.argument(name, value)).await;
        assert!(refused.contains(name) && refused.contains(".declare(..)"), "{refused}");
    }
    let refused = refusal(declared(&world).await.argument("x".repeat(256), 1)).await;
    assert!(refused.contains("255 bytes"), "{refused}");
    let refused = refusal(declared(&world).await.bind("", "order.*")).await;
    assert!(refused.contains("default exchange"), "{refused}");
}

/// Publishes to the exchange that has the queue's name.
async fn publish(world: &World, routing_key: &str, headers: FieldTable) {
    let properties = BasicProperties::default().with_headers(headers);
    let (name, options) = (world.queue.as_str().into(), BasicPublishOptions { mandatory: true, ..Default::default() });
    let confirm = world.channel.basic_publish(name, routing_key.into(), options, b"x", properties).await.unwrap();
    assert!(confirm.await.unwrap().take_message().is_none(), "it did not reach the queue");
}

async fn exchange(world: &World, kind: ExchangeKind) {
    let options = ExchangeDeclareOptions::default();
    world.channel.exchange_declare(world.queue.as_str().into(), kind, options, FieldTable::default()).await.unwrap();
}

async fn remove_exchange(world: &World) {
    world.channel.exchange_delete(world.queue.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
}

/// Its messages are lost, so somebody must know. A new start declares it again, with its bindings.
#[tokio::test]
async fn a_queue_that_was_deleted_is_not_declared_again_by_the_same_process() {
    let Some(world) = World::empty().await else { return };
    exchange(&world, ExchangeKind::Topic).await;
    let start =
        async || declared(&world).await.bind(&world.queue, "order.*").bind(&world.queue, "refund").await.unwrap();
    let mut queue = start().await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    world.delete().await;
    loss(&mut queue).await;
    for _ in 0..2 {
        let error = queue.subscribe(subscribe_options(1)).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(Error::Config(_))), "{error:?}");
        let error = error.to_string();
        assert!(error.contains(&world.queue) && error.contains("was deleted"), "{error}");
    }
    start().await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    for routing_key in ["order.paid", "refund"] {
        publish(&world, routing_key, FieldTable::default()).await;
        next(&mut queue).await.1.ack().await.unwrap();
    }
    remove_exchange(&world).await;
}

#[tokio::test]
async fn a_binding_to_a_headers_exchange_has_arguments() {
    let Some(world) = World::empty().await else { return };
    exchange(&world, ExchangeKind::Headers).await;
    let arguments = [("x-match", Argument::from("all")), ("kind", "order".into())];
    let mut queue = declared(&world).await.bind_with(&world.queue, "", arguments).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    let mut headers = FieldTable::default();
    headers.insert("kind".into(), AMQPValue::LongString("order".into()));
    publish(&world, "", headers).await;
    next(&mut queue).await;
    remove_exchange(&world).await;
}

#[tokio::test]
async fn an_exchange_that_does_not_exist_is_refused_with_the_remedy() {
    let Some(world) = World::empty().await else { return };
    let refused = refusal(declared(&world).await.bind("idem-no-such-exchange", "order.*")).await;
    assert!(refused.contains("idem-no-such-exchange") && refused.contains(&world.queue), "{refused}");
    assert!(refused.contains("declare the exchange"), "{refused}");
}

/// RabbitMQ delivers to the consumer with the higher priority while its prefetch has room, and otherwise to the one
/// that has waited longest.
#[tokio::test]
async fn a_consumer_has_the_requested_arguments_in_every_mode() {
    let Some(world) = World::new().await else { return };
    let name = world.queue.as_str();
    let mut queue = world.rabbit().await.queue(name).consumer_argument("x-priority", 10).await.unwrap();
    for way in ["by lapin", "by bytes"] {
        if way == "by bytes" {
            // Ends lapin's connection, so that the next one reads raw bytes.
            world.publish_unreadable(&["bad"]).await;
            loss(&mut queue).await;
            world.until_ready(1).await;
            world.channel.queue_purge(name.into(), Default::default()).await.unwrap();
        }
        let options = BasicConsumeOptions::default();
        let other = world.channel.basic_consume(name.into(), way.into(), options, FieldTable::default()).await.unwrap();
        queue.subscribe(subscribe_options(1)).await.unwrap();
        world.publish(way).await;
        let (delivery, acker) = next(&mut queue).await;
        assert_eq!(delivery.payload(), way);
        acker.ack().await.unwrap();
        world.channel.basic_cancel(other.tag(), Default::default()).await.unwrap();
    }
}
