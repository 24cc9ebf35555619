//! The contents and the order of deliveries.

use std::time::{Duration, SystemTime};

use crate::common::{World, next, nothing_for, subscribe_options};
use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use idem_core::{Acker, DeliveryOrder, Settled, Source};

#[tokio::test]
async fn a_deleted_key_is_a_tombstone() {
    let Some(world) = World::new().await else { return };
    let mut stream = world.open(1).await;
    for (name, value, payload, is_tombstone) in [
        ("KV-Operation", "DEL", "", true),
        ("KV-Operation", "PURGE", "", true),
        ("Nats-Marker-Reason", "MaxAge", "", true),
        ("KV-Operation", "PUT", "", false),
        ("KV-Operation", "DEL", "x", false),
        ("other", "DEL", "", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(name, value);
        world.publish_with(payload, headers).await;
        let (delivery, acker) = next(&mut stream).await;
        assert_eq!(delivery.is_tombstone(), is_tombstone, "{name}: {value}");
        acker.ack().await.unwrap();
    }
}

#[tokio::test]
async fn headers_arrive_unchanged_and_the_values_of_one_name_in_order() {
    let Some(world) = World::new().await else { return };
    let mut headers = HeaderMap::new();
    for value in ["2", "1", "3"] {
        headers.append("many", value);
    }
    headers.insert("Trace", "00-ab");
    headers.insert("empty", "");
    headers.insert(NATS_MESSAGE_ID, "id-1");
    world.publish_with("x", headers).await;
    let mut stream = world.open(1).await;
    let (delivery, _acker) = next(&mut stream).await;
    let expected =
        [("Nats-Msg-Id", "id-1"), ("Trace", "00-ab"), ("empty", ""), ("many", "2"), ("many", "1"), ("many", "3")];
    let headers: Vec<_> = delivery.headers().iter().collect();
    assert_eq!(headers, expected.map(|(name, value)| (name, value.as_bytes())));
    assert_eq!(delivery.message_id(), Some("id-1"));
}

#[tokio::test]
async fn the_last_of_several_headers_counts_and_two_different_ids_are_none() {
    let Some(world) = World::new().await else { return };
    let mut stream = world.open(1).await;
    for (ids, id) in [(["7", "7"], Some("7")), (["8", "9"], None)] {
        let mut headers = HeaderMap::new();
        for (value, kind) in ids.into_iter().zip(["text/plain", "application/json"]) {
            headers.append(NATS_MESSAGE_ID, value);
            headers.append("Content-Type", kind);
        }
        world.publish_with("x", headers).await;
        let (delivery, acker) = next(&mut stream).await;
        assert_eq!((delivery.message_id(), delivery.content_type()), (id, Some("application/json")));
        acker.ack().await.unwrap();
    }
}

#[tokio::test]
async fn a_message_arrives_with_its_subject_and_its_content_type() {
    let Some(world) = World::new().await else { return };
    let (subject, mut headers) = (format!("{}.orders.42.paid", world.stream), HeaderMap::new());
    headers.insert("Content-Type", "application/json");
    world.jetstream.publish_with_headers(subject.clone(), headers, "x".into()).await.unwrap().await.unwrap();
    let (delivery, _acker) = next(&mut world.open(1).await).await;
    assert_eq!((delivery.subject(), delivery.source()), (Some(subject.as_str()), world.stream.as_str()));
    assert_eq!(delivery.content_type(), Some("application/json"));
    assert_eq!((delivery.partition_key(), delivery.produced_at(), delivery.correlation_id()), (None, None, None));
}

#[tokio::test]
async fn a_position_has_the_number_and_the_time_of_the_server() {
    let Some(world) = World::new().await else { return };
    world.publish("a").await;
    world.publish("b").await;
    let mut stream = world.open(2).await;
    let (first, _one) = next(&mut stream).await;
    let (second, acker) = next(&mut stream).await;
    let kept = world.jetstream.get_stream(&world.stream).await.unwrap().get_raw_message(2).await.unwrap();
    let published = SystemTime::from(kept.time);
    let nanos = published.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    assert_eq!(second.position(), Some(&*format!("{}/2@{nanos}", world.stream)));
    let micros = Duration::from_micros((nanos / 1000).try_into().unwrap());
    assert_eq!(second.published_at(), Some(SystemTime::UNIX_EPOCH + micros), "as an inbox row keeps it");
    assert_ne!(first.position(), second.position());

    acker.release().await.unwrap();
    let (again, _acker) = next(&mut stream).await;
    assert_eq!((again.position(), again.redelivered()), (second.position(), true));
}

#[tokio::test]
async fn a_position_differs_after_the_stream_was_recreated() {
    let Some(world) = World::new().await else { return };
    let mut positions = Vec::new();
    for _ in 0..2 {
        world.publish("x").await;
        let mut stream = world.open(1).await;
        positions.push(next(&mut stream).await.0.position().unwrap().to_owned());
        stream.close().await;
        world.delete().await;
        world.make(|_| {}).await;
    }
    assert!(positions.iter().all(|position| position.starts_with(&format!("{}/1@", world.stream))), "{positions:?}");
    assert_ne!(positions[0], positions[1]);
}

#[tokio::test]
async fn a_filter_leaves_the_others_out() {
    let Some(world) = World::new().await else { return };
    world.publish("x").await;
    let other = format!("{}.other", world.stream);
    world.jetstream.publish(other.clone(), "y".into()).await.unwrap().await.unwrap();
    let mut stream = world.source().await.filter_subject(other);
    stream.subscribe(subscribe_options(4)).await.unwrap();
    assert_eq!(next(&mut stream).await.0.payload(), "y");
    nothing_for(&mut stream, Duration::from_millis(100)).await;
}

#[tokio::test]
async fn in_a_queues_order_there_is_one_ordering_key_and_one_message_at_a_time_for_all_workers() {
    let Some(world) = World::new().await else { return };
    world.publish_each(0..3).await;
    let ordered = || subscribe_options(4).with_order(DeliveryOrder::Queue);
    let (mut one, mut two) = (world.source().await, world.source().await);
    one.subscribe(ordered()).await.unwrap();
    two.subscribe(ordered()).await.unwrap();
    let mut seen = Vec::new();
    // The first one is released once, and keeps its place.
    for turn in 0..4 {
        let (delivery, acker) = tokio::select! {
            delivery = next(&mut one) => delivery,
            delivery = next(&mut two) => delivery,
        };
        assert!(format!("{delivery:?}").contains("ordering_key: Some(0)"), "{delivery:?}");
        nothing_for(&mut one, Duration::from_millis(50)).await;
        nothing_for(&mut two, Duration::from_millis(50)).await;
        seen.push(delivery.payload().clone());
        let settled = if turn == 0 { acker.release().await } else { acker.ack().await };
        assert_eq!(settled.unwrap(), Settled::Confirmed);
    }
    assert_eq!(seen, ["0", "0", "1", "2"]);
}

#[tokio::test]
async fn a_consumer_that_allows_small_and_short_pulls_only_is_pulled_from_so() {
    let Some(world) = World::new().await else { return };
    world.consumer(|config| (config.max_batch, config.max_expires) = (2, Duration::from_secs(1))).await;
    let mut stream = world.open(5).await;
    nothing_for(&mut stream, Duration::from_millis(2500)).await;
    world.publish_each(0..5).await;
    let mut held = Vec::new();
    for n in 0..5 {
        held.push(next(&mut stream).await);
        assert_eq!(held[n].0.payload(), &n.to_string());
    }
}
