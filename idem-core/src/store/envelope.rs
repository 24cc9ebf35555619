//! The encoding of a delivery's facts in an inbox row.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Delivery, Headers};

/// The facts of a delivery without its payload, as JSON in the column `envelope`. The column holds bytes, so that no
/// content can prevent the row from being stored; JSON keeps it readable for operators.
#[derive(Serialize, Deserialize)]
struct Envelope {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    /// Omitted if false, as in rows written before this field existed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    tombstone: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition_key: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    /// Microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    published_at: Option<u64>,
    /// Microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    produced_at: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<String, String>,
    headers: Vec<(String, Value)>,
}

/// Text if the value is UTF-8, otherwise a list of bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Text(String),
    Bytes(Vec<u8>),
}

/// Encodes the facts of a delivery for an inbox row.
pub fn seal(delivery: &Delivery) -> Vec<u8> {
    let envelope = Envelope {
        source: delivery.source().to_owned(),
        message_id: delivery.message_id.clone(),
        event_type: delivery.event_type.clone(),
        position: delivery.position.clone(),
        tombstone: delivery.tombstone,
        subject: delivery.subject.clone(),
        partition_key: delivery.partition_key().map(Value::of),
        content_type: delivery.content_type.clone(),
        correlation_id: delivery.rare().correlation_id.clone(),
        reply_to: delivery.rare().reply_to.clone(),
        published_at: delivery.published_at.and_then(micros),
        produced_at: delivery.produced_at.and_then(micros),
        properties: delivery.properties.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        headers: delivery.headers.iter().map(|(name, bytes)| (name.to_owned(), Value::of(bytes))).collect(),
    };
    // Strings, byte lists and options always serialize; an empty envelope decodes like a damaged one.
    serde_json::to_vec(&envelope).unwrap_or_default()
}

/// Decodes a delivery for its next attempt. A damaged envelope (an edited row, for example) decodes without facts: the
/// payload matters most, and a row must never block its queue.
pub fn open(envelope: &[u8], payload: Vec<u8>, attempts: u32) -> Delivery {
    let mut delivery = Delivery::new("", payload);
    delivery.attempt = attempts + 1;
    if let Ok(envelope) = serde_json::from_slice::<Envelope>(envelope) {
        delivery.source = envelope.source.into();
        delivery.message_id = envelope.message_id;
        delivery.event_type = envelope.event_type;
        delivery.position = envelope.position;
        delivery.tombstone = envelope.tombstone;
        delivery.subject = envelope.subject;
        delivery.partition_key = envelope.partition_key.map(Bytes::from);
        delivery.content_type = envelope.content_type;
        delivery.set_rare(|rare| &mut rare.correlation_id, envelope.correlation_id);
        delivery.set_rare(|rare| &mut rare.reply_to, envelope.reply_to);
        delivery.published_at = envelope.published_at.and_then(time);
        delivery.produced_at = envelope.produced_at.and_then(time);
        delivery.properties = envelope.properties.into_iter().collect();
        delivery.headers =
            envelope.headers.into_iter().map(|(name, value)| (name, Bytes::from(value))).collect::<Headers>();
    }
    delivery
}

/// Truncates a time to microseconds; `None` before 1970, which no row can store.
pub(crate) fn micros(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
}

pub(crate) fn time(micros: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(micros))
}

impl Value {
    pub(crate) fn of(value: &[u8]) -> Self {
        match std::str::from_utf8(value) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(value.to_vec()),
        }
    }
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
mod tests;
