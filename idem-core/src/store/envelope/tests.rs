//! Facts that a round trip through an envelope keeps.

use super::*;
use crate::Properties;

/// All facts that an envelope keeps.
fn facts(delivery: &Delivery) -> impl PartialEq + std::fmt::Debug {
    let texts = [
        delivery.source(),
        delivery.message_id().unwrap_or("none"),
        delivery.event_type().unwrap_or("none"),
        delivery.position().unwrap_or("none"),
        delivery.subject().unwrap_or("none"),
        delivery.content_type().unwrap_or("none"),
        delivery.correlation_id().unwrap_or("none"),
        delivery.reply_to().unwrap_or("none"),
    ];
    let bytes = (delivery.payload().clone(), delivery.partition_key().map(<[u8]>::to_vec));
    let times = (delivery.published_at(), delivery.produced_at());
    let properties = delivery.properties().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    let headers = delivery.headers().iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect::<Vec<_>>();
    (texts.map(str::to_owned), bytes, times, delivery.is_tombstone(), properties, headers)
}

fn reopened(delivery: &Delivery) -> Delivery {
    open(&seal(delivery), delivery.payload().to_vec(), 2)
}

#[test]
fn the_facts_of_a_delivery_are_restored_with_any_content() {
    let headers = Headers::from_iter([
        ("text", Bytes::from_static("é \0 \u{1b}".as_bytes())),
        ("bytes", Bytes::from_static(b"\xff\x00")),
        ("text", Bytes::from_static(b"")),
        ("nul \0", Bytes::from(vec![b'x'; 256])),
    ]);
    let at = |nanos| Some(UNIX_EPOCH + Duration::from_nanos(nanos));
    let delivery = Delivery::new("orders", "payload")
        .with_headers(headers)
        .with_message_id(Some("m\0".to_owned()))
        .with_event_type(Some("paid".to_owned()))
        .with_subject(Some("orders.42\u{7f}.paid".to_owned()))
        .with_content_type(Some("application/json".to_owned()))
        .with_correlation_id(Some(String::new()))
        .with_reply_to(Some("answers \"é\"".to_owned()))
        .with_properties(Properties::from_iter([("priority", "9"), ("exchange", "shop\0")]))
        .with_partition_key(Some(Bytes::from_static(b"k\xff")))
        .with_published_at(at(1_700_000_000_123_456_789))
        .with_produced_at(at(1_600_000_000_987_654_321));
    let opened = reopened(&delivery);
    assert_eq!(facts(&opened), facts(&delivery));
    assert_eq!((opened.attempt(), opened.partition_key()), (3, Some(&b"k\xff"[..])));
    assert_eq!(opened.produced_at(), Some(UNIX_EPOCH + Duration::from_micros(1_600_000_000_987_654)));
    assert_eq!(opened.properties(), delivery.properties());
}

#[test]
fn empty_values_stay_empty_and_missing_ones_stay_missing() {
    let bare = Delivery::new("orders", "");
    assert_eq!(facts(&reopened(&bare)), facts(&bare));
    let empty = bare
        .with_subject(Some(String::new()))
        .with_partition_key(Some(Bytes::new()))
        .with_content_type(Some(String::new()));
    let opened = reopened(&empty);
    assert_eq!((opened.subject(), opened.partition_key(), opened.content_type()), (Some(""), Some(&b""[..]), Some("")));
    assert_eq!((opened.correlation_id(), opened.reply_to()), (None, None));
}

/// Written before these facts were kept.
#[test]
fn an_older_envelope_opens_without_what_it_does_not_have() {
    let older = br#"{"source":"orders","message_id":"m","headers":[["h","v"]]}"#;
    let opened = open(older, b"payload".to_vec(), 0);
    assert_eq!((opened.source(), opened.message_id()), ("orders", Some("m")));
    assert_eq!(opened.headers().get("h"), Some(&b"v"[..]));
    assert_eq!((opened.subject(), opened.partition_key(), opened.produced_at()), (None, None, None));
    assert!(opened.properties().is_empty());
}

/// Written by a later version.
#[test]
fn an_envelope_with_more_than_is_known_opens() {
    let later = br#"{"source":"orders","weight":7,"subject":"a.b","headers":[]}"#;
    assert_eq!(open(later, Vec::new(), 0).subject(), Some("a.b"));
}

#[test]
fn a_tombstone_is_restored_as_one_and_older_rows_are_not() {
    let delivery = Delivery::new("orders", "");
    let sealed = seal(&delivery);
    assert!(!String::from_utf8_lossy(&sealed).contains("tombstone"));
    assert!(!open(&sealed, Vec::new(), 0).is_tombstone());
    assert!(open(&seal(&delivery.with_tombstone(true)), Vec::new(), 0).is_tombstone());
}

#[test]
fn a_damaged_envelope_opens_without_facts() {
    assert_eq!(open(b"{", b"payload".to_vec(), 0).payload().as_ref(), b"payload");
}
