//! The content of deliveries.

use std::time::{Duration, SystemTime};

use idem_core::__private::cloud_event;
use idem_core::Source;

use idem_test::Publication;

use super::steps::{ack, next, open, take};
use super::world::World;

/// Every byte of payload, headers and properties arrives as published.
pub async fn payload_headers_and_properties_arrive_unchanged<W: World>(world: W) {
    let mut source = open(&world, 4).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let large = vec![b'x'; W::FEATURES.max_payload.unwrap_or(1024 * 1024 + 1)];
    let odd = if W::FEATURES.header_bytes { bytes.clone() } else { "\u{e9} : =".into() };
    let plain = Publication::new(bytes.clone()).header("trace", "00-ab").header("odd", odd.clone()).header("none", "");
    let plain = if W::FEATURES.message_id { plain.message_id("id \u{e9} 7") } else { plain };
    let plain = if W::FEATURES.event_type { plain.event_type("OrderPaid") } else { plain };
    world.publish(plain).await;
    world.publish(Publication::new("")).await;
    world.publish(Publication::new(large.clone())).await;

    let first = take(&mut source).await;
    assert_eq!(first.payload().as_ref(), bytes);
    assert_eq!(first.headers().get("trace"), Some(&b"00-ab"[..]));
    assert_eq!(first.headers().get("odd"), Some(odd.as_slice()));
    assert_eq!(first.headers().get("none"), Some(&b""[..]));
    assert_eq!(first.source(), source_name(&source));
    assert_eq!(first.redelivered(), W::FEATURES.presumes, "it was never delivered before");
    assert_eq!(first.message_id(), W::FEATURES.message_id.then_some("id \u{e9} 7"));
    assert_eq!(first.event_type(), W::FEATURES.event_type.then_some("OrderPaid"));
    let empty = take(&mut source).await;
    assert!(empty.payload().is_empty() && !empty.is_tombstone());
    assert_eq!((empty.message_id().is_some(), empty.event_type()), (W::FEATURES.assigns_ids, None));
    assert_eq!(take(&mut source).await.payload().as_ref(), large);
}

/// Each property that brokers share arrives under one name, and a property that was not published is absent.
pub async fn the_facts_of_a_message_arrive<W: World>(world: W) {
    let mut source = open(&world, 4).await;
    // A whole second, which all brokers can carry.
    let made = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let key = if W::FEATURES.grouped { &b"customer-7"[..] } else { &[0xff, 0x00] };
    let mut full = Publication::new("{}");
    if W::FEATURES.content_type {
        full = full.content_type("application/json");
    }
    if W::FEATURES.correlation {
        full = full.correlation_id("c \u{e9} 1").reply_to("answers");
    }
    if W::FEATURES.partition_key {
        full = full.partition_key(key);
    }
    if W::FEATURES.produced_at {
        full = full.produced_at(made);
    }
    world.publish(full).await;
    world.publish(Publication::new("{}")).await;

    assert_eq!(source.has_partition_keys(), W::FEATURES.partition_key, "a worker asks before it starts");
    assert_eq!(source.has_subjects(), world.subject().is_some());
    assert_eq!(source.has_event_types(), W::FEATURES.event_type);
    let full = take(&mut source).await;
    assert_eq!(full.subject(), world.subject().as_deref());
    assert_eq!(full.content_type(), W::FEATURES.content_type.then_some("application/json"));
    assert_eq!(full.correlation_id(), W::FEATURES.correlation.then_some("c \u{e9} 1"));
    assert_eq!(full.reply_to(), W::FEATURES.correlation.then_some("answers"));
    assert_eq!(full.partition_key(), W::FEATURES.partition_key.then_some(key));
    assert_eq!(full.produced_at(), W::FEATURES.produced_at.then_some(made));
    let bare = take(&mut source).await;
    assert_eq!(bare.subject(), world.subject().as_deref());
    assert_eq!((bare.content_type(), bare.correlation_id(), bare.reply_to()), (None, None, None));
    assert_eq!(bare.partition_key().is_some(), W::FEATURES.grouped);
    let has_others = !bare.headers().is_empty() || !bare.properties().is_empty();
    assert_eq!(has_others, W::FEATURES.grouped, "{bare:?}");
}

/// The attributes arrive as headers under each naming that the broker can carry, and in JSON by its content type.
pub async fn a_cloud_event_arrives_as_one<W: World>(world: W) {
    let mut source = open(&world, 4).await;
    // Only brokers whose header values are bytes allow a colon in header names.
    let prefixes = ["ce-", "ce_", "cloudEvents_", "cloudEvents:"];
    let prefixes = if W::FEATURES.header_bytes { &prefixes[..] } else { &prefixes[..3] };
    for prefix in prefixes {
        let attributes = [("specversion", "1.0"), ("id", "7"), ("source", "/shop"), ("type", "order.paid")];
        let event = Publication::new("data");
        let named =
            |event: Publication, (name, value): (&str, &'static str)| event.header(format!("{prefix}{name}"), value);
        let event = attributes.into_iter().fold(event, named);
        world.publish(if W::FEATURES.content_type { event.content_type("text/plain") } else { event }).await;
        assert_eq!(
            cloud_event(take(&mut source).await),
            Some(Ok(("/shop 7".to_owned(), b"data".to_vec()))),
            "{prefix}"
        );
    }
    if W::FEATURES.content_type {
        let event = r#"{"specversion":"1.0","id":"8","source":"/shop","type":"order.paid","data":{"n": 1.10}}"#;
        world.publish(Publication::new(event).content_type("application/cloudevents+json")).await;
        let expected = ("/shop 8".to_owned(), br#"{"n": 1.10}"#.to_vec());
        assert_eq!(cloud_event(take(&mut source).await), Some(Ok(expected)));
        world.publish(Publication::new("{}").content_type("application/cloudevents+json; charset=UTF-8")).await;
        let odd = cloud_event(take(&mut source).await);
        assert!(odd.as_ref().is_some_and(Result::is_err), "{odd:?}");
    }
    world.publish(Publication::new("{}").header("id", "7")).await;
    assert_eq!(cloud_event(take(&mut source).await), None);
}

fn source_name(source: &impl idem_core::Source) -> &str {
    source.name()
}

/// A single source gets messages in the order of publication, or those of a group.
pub async fn messages_arrive_in_order<W: World>(world: W) {
    for number in 0..20u8 {
        let publication = Publication::new(vec![number]);
        world.publish(if W::FEATURES.grouped { publication.partition_key("customer-7") } else { publication }).await;
    }
    let mut source = open(&world, 20).await;
    let mut ackers = Vec::new();
    for number in 0..20u8 {
        let (delivery, acker) = next(&mut source).await;
        assert_eq!(delivery.payload().as_ref(), [number]);
        if W::FEATURES.grouped {
            ack(acker).await;
        } else {
            ackers.push(acker);
        }
    }
    for acker in ackers {
        ack(acker).await;
    }
}
