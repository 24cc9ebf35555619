//! The content of messages, as an idem worker receives it.

use std::time::{Duration, SystemTime};

use idem_core::__private::cloud_event;
use idem_core::{Outgoing, Sink};

use crate::soon;

use super::steps::{consume, open, staged};
use super::world::World;

/// The id, the type, the content type, the key, the headers and each byte of the payload arrive.
pub async fn a_message_arrives_with_its_facts<W: World>(world: W) {
    let sink = open(&world).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let large = vec![b'x'; 300_000];
    let full = Outgoing::new(world.to(), bytes.clone())
        .key("order 7 \u{e9}")
        .event_type("order.paid")
        .content_type("application/octet-stream")
        .header("traceparent", trace)
        .header("Tenant", "a: b=c")
        .header("none", "");
    let full = staged(full);
    let binary = staged(Outgoing::new(world.to(), large.clone()).key(uuid::Uuid::max()));
    soon(sink.publish(&full)).await.unwrap();
    soon(sink.publish(&binary)).await.unwrap();

    let deliveries = consume(&world, [full.id(), binary.id()]).await;
    let found = |id: uuid::Uuid| deliveries.iter().find(|one| W::id(one) == Some(id.to_string())).unwrap();
    let (one, other) = (found(full.id()), found(binary.id()));
    assert_eq!(one.payload().as_ref(), bytes);
    assert_eq!(W::event_type(one).as_deref(), Some("order.paid"));
    assert_eq!(one.content_type(), Some("application/octet-stream"));
    assert_eq!(W::key(one).as_deref(), Some("order 7 \u{e9}".as_bytes()));
    assert_eq!(one.headers().get_str("traceparent"), Some(trace));
    assert_eq!(one.headers().get_str("Tenant"), Some("a: b=c"));
    assert_eq!(one.headers().get_str("none"), Some(""));
    assert_eq!(other.payload().as_ref(), large);
    assert_eq!(W::key(other).as_deref(), Some(&[0xff; 16][..]), "a key is bytes");
    soon(sink.close()).await;
}

/// A message that has nothing but a payload arrives, and so does an empty payload.
pub async fn a_message_without_facts_arrives_without_them<W: World>(world: W) {
    let sink = open(&world).await;
    let empty = staged(Outgoing::new(world.to(), ""));
    soon(sink.publish(&empty)).await.unwrap();
    let deliveries = consume(&world, [empty.id()]).await;
    let [one] = &deliveries[..] else { panic!("{deliveries:?}") };
    assert!(one.payload().is_empty() && !one.is_tombstone());
    assert_eq!((W::event_type(one), W::key(one), one.content_type()), (None, None, None));
    soon(sink.close()).await;
}

/// With the option, a consumer reads a CloudEvent, and still the message's own facts.
pub async fn a_cloud_event_arrives_as_one<W: World>(world: W) {
    let sink = world.cloud_events("/shop/\u{e9} 1%").await;
    soon(sink.open()).await.unwrap();
    let event = Outgoing::new(world.to(), "data").key(7).event_type("order.paid").content_type("text/plain");
    let event = staged(event).with_staged_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    soon(sink.publish(&event)).await.unwrap();
    let delivery = consume(&world, [event.id()]).await.remove(0);
    assert_eq!(
        (W::event_type(&delivery).as_deref(), delivery.content_type()),
        (Some("order.paid"), Some("text/plain"))
    );
    let expected = (format!("/shop/\u{e9} 1% {}", event.id()), b"data".to_vec());
    assert_eq!(cloud_event(delivery), Some(Ok(expected)));
    soon(sink.close()).await;
}
