//! How the facts of a delivery are kept in an inbox row.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Delivery, Headers};

/// The facts of a delivery beside its payload, as JSON in the column `envelope`: bytes, so that no content can block
/// the storing, and readable to whoever looks at the table.
#[derive(Serialize, Deserialize)]
struct Envelope {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    /// Left out where it is false, as rows of before it was known have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    tombstone: bool,
    /// Microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_at: Option<u64>,
    headers: Vec<(String, Value)>,
}

/// Text where the value is UTF-8, else a list of bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Bytes(Vec<u8>),
}

/// The facts of a delivery as bytes, for an inbox row.
pub fn seal(delivery: &Delivery) -> Vec<u8> {
    let value = |value: &[u8]| match std::str::from_utf8(value) {
        Ok(text) => Value::Text(text.to_owned()),
        Err(_) => Value::Bytes(value.to_vec()),
    };
    let envelope = Envelope {
        source: delivery.source().to_owned(),
        message_id: delivery.message_id.clone(),
        event_type: delivery.event_type.clone(),
        position: delivery.position.clone(),
        tombstone: delivery.tombstone,
        partition_key: delivery.partition_key().map(value),
        published_at: delivery.published_at.and_then(micros),
        headers: delivery.headers.iter().map(|(name, bytes)| (name.to_owned(), value(bytes))).collect(),
    };
    // Strings, byte lists and options always serialise; an empty envelope is what a damaged one opens to as well.
    serde_json::to_vec(&envelope).unwrap_or_default()
}

/// The delivery that was sealed, for its next attempt. A damaged envelope (somebody edited the row) opens without facts, since the payload is
/// what counts and a row must never block its queue.
pub fn open(envelope: &[u8], payload: Vec<u8>, attempts: u32) -> Delivery {
    let mut delivery = Delivery::new("", payload);
    delivery.attempt = attempts + 1;
    if let Ok(envelope) = serde_json::from_slice::<Envelope>(envelope) {
        delivery.source = envelope.source.into();
        delivery.message_id = envelope.message_id;
        delivery.event_type = envelope.event_type;
        delivery.position = envelope.position;
        delivery.tombstone = envelope.tombstone;
        delivery.partition_key = envelope.partition_key.map(Bytes::from);
        delivery.published_at = envelope.published_at.and_then(time);
        delivery.headers =
            envelope.headers.into_iter().map(|(name, value)| (name, Bytes::from(value))).collect::<Headers>();
    }
    delivery
}

fn micros(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

fn time(micros: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(micros))
}

impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        match value {
            Value::Text(text) => text.into(),
            Value::Bytes(bytes) => bytes.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_a_delivery_come_back_whatever_they_hold() {
        let headers = Headers::from_iter([
            ("text", Bytes::from_static("é \0 \u{1b}".as_bytes())),
            ("bytes", Bytes::from_static(b"\xff\x00")),
            ("text", Bytes::from_static(b"")),
            ("nul \0", Bytes::from(vec![b'x'; 256])),
        ]);
        let delivery = Delivery::new("orders", "payload")
            .with_headers(headers)
            .with_message_id(Some("m\0".to_owned()))
            .with_event_type(Some("paid".to_owned()))
            .with_partition_key(Some(Bytes::from_static(b"k\xff")))
            .with_published_at(Some(UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456)));
        let opened = open(&seal(&delivery), delivery.payload().to_vec(), 2);
        assert_eq!(opened.headers(), delivery.headers());
        assert_eq!((opened.source(), opened.message_id()), ("orders", Some("m\0")));
        assert_eq!((opened.event_type(), opened.position()), (Some("paid"), None));
        assert_eq!(opened.partition_key(), delivery.partition_key());
        assert_eq!((opened.attempt(), opened.published_at()), (3, delivery.published_at()));
    }

    #[test]
    fn a_tombstone_comes_back_as_one_and_older_rows_are_none() {
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
}
