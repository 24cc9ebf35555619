//! Deliveries, and the effects of settling them.

use std::time::{Duration, SystemTime};

use crate::common::{World, next};
use idem_core::{Acker, Settled, Source};
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, ExchangeKind};

#[tokio::test]
async fn headers_and_properties_arrive_unchanged() {
    let Some(world) = World::new().await else { return };
    let mut headers = FieldTable::default();
    headers.insert("trace".into(), AMQPValue::LongString("00-ab".into()));
    headers.insert("raw".into(), AMQPValue::LongString(LongString::from(vec![0, 0xff])));
    headers.insert("count".into(), AMQPValue::LongLongInt(-7));
    headers.insert("flag".into(), AMQPValue::Boolean(true));
    let properties =
        BasicProperties::default().with_headers(headers).with_message_id("id-1".into()).with_type("order_paid".into());
    world.publish_with("x", properties).await;
    let mut queue = world.open(1).await;
    let (delivery, _) = next(&mut queue).await;
    assert_eq!(delivery.headers().get("trace"), Some(&b"00-ab"[..]));
    assert_eq!(delivery.headers().get("raw"), Some(&[0, 0xff][..]));
    assert_eq!(delivery.headers().get_str("count"), Some("-7"));
    assert_eq!(delivery.headers().get_str("flag"), Some("true"));
    assert_eq!(delivery.headers().len(), 4);
    assert_eq!(delivery.message_id(), Some("id-1"));
    assert_eq!(delivery.event_type(), Some("order_paid"));
    assert_eq!(delivery.source(), world.queue);
    assert_eq!((delivery.position(), delivery.redelivered(), delivery.attempt()), (None, false, 1));
    // A worker whose key is a position or a partition key is refused at its start.
    assert!(!queue.has_positions() && !queue.has_partition_keys());
}

#[tokio::test]
async fn a_message_arrives_with_its_way_and_with_what_only_rabbitmq_says_of_it() {
    let Some(world) = World::new().await else { return };
    let exchange = format!("{}-shop", world.queue);
    world.exchange(&exchange, ExchangeKind::Topic, "orders.*.paid").await;
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_content_encoding("gzip".into())
        .with_delivery_mode(2)
        .with_priority(7)
        .with_correlation_id("c-1".into())
        .with_reply_to("answers".into())
        .with_expiration("600000".into())
        .with_timestamp(1_700_000_000)
        .with_user_id("guest".into())
        .with_app_id("shop".into())
        .with_cluster_id("east".into());
    let (key, publish) = ("orders.42.paid".into(), BasicPublishOptions::default());
    let confirm = world.channel.basic_publish(exchange.as_str().into(), key, publish, b"x", properties).await.unwrap();
    assert!(confirm.await.unwrap().is_ack());

    let (delivery, _acker) = next(&mut world.open(1).await).await;
    assert_eq!((delivery.subject(), delivery.source()), (Some("orders.42.paid"), world.queue.as_str()));
    assert_eq!(delivery.content_type(), Some("application/json"));
    assert_eq!((delivery.correlation_id(), delivery.reply_to()), (Some("c-1"), Some("answers")));
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    assert_eq!(
        (delivery.produced_at(), delivery.published_at()),
        (Some(at), None),
        "the server has no clock of its own"
    );
    let expected = [
        ("app_id", "shop"),
        ("cluster_id", "east"),
        ("content_encoding", "gzip"),
        ("delivery_mode", "2"),
        ("exchange", exchange.as_str()),
        ("expiration", "600000"),
        ("priority", "7"),
        ("user_id", "guest"),
    ];
    assert_eq!(delivery.properties().iter().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_time_that_cannot_exist_is_ignored() {
    let Some(world) = World::new().await else { return };
    world.publish_with("x", BasicProperties::default().with_timestamp(u64::MAX)).await;
    world.publish("after").await;
    let mut queue = world.open(1).await;
    let (delivery, acker) = next(&mut queue).await;
    assert_eq!((delivery.payload().as_ref(), delivery.produced_at()), (&b"x"[..], None));
    acker.ack().await.unwrap();
    assert_eq!(next(&mut queue).await.0.payload(), "after");
}

#[tokio::test]
async fn a_source_that_was_dropped_gives_everything_back() {
    let Some(world) = World::new().await else { return };
    world.publish_each(["a", "b"]).await;
    let mut queue = world.open(2).await;
    let delivery = next(&mut queue).await;
    drop(queue);
    world.until_ready(2).await;
    assert_eq!(delivery.1.ack().await.unwrap(), Settled::Stale);
}
