//! The encoding of a message's facts in a row of the outbox.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Key;
use crate::store::envelope::Value;

use super::Outgoing;

/// The facts of a message besides its destination, key and payload, as JSON in the column `envelope`.
#[derive(Default, Serialize, Deserialize)]
struct Envelope {
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, Value)>,
}

/// Encodes the facts of a message.
pub(crate) fn seal(message: &Outgoing) -> Vec<u8> {
    let envelope = Envelope {
        event_type: message.event_type.clone(),
        content_type: message.content_type.clone(),
        headers: message.headers.iter().map(|(name, value)| (name.to_owned(), Value::of(value))).collect(),
    };
    // Strings and byte lists always serialize.
    serde_json::to_vec(&envelope).unwrap_or_default()
}

/// Decodes a message. One whose envelope was damaged by hand is published without its facts.
pub(crate) fn open(destination: String, key: &[u8], envelope: &[u8], payload: Vec<u8>) -> Outgoing {
    let Envelope { event_type, content_type, headers } = serde_json::from_slice(envelope).unwrap_or_default();
    Outgoing {
        event_type,
        content_type,
        headers: headers.into_iter().map(|(name, value)| (name, Bytes::from(value))).collect(),
        // The table's CHECK limits keys to 255 bytes.
        key: Key::of(key).ok(),
        ..Outgoing::new(destination, payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_makes_the_round_trip() {
        for message in [
            Outgoing::new("", ""),
            Outgoing::json("orders", &"\u{0} \u{e4}").unwrap().key(7).event_type("paid").header("a", vec![0xff, 0]),
            Outgoing::new("orders", vec![0, 0xff]).header("a", "1").header("a", "2"),
        ] {
            let key = message.key.clone().unwrap_or(Key::empty());
            let opened = open(message.to.clone(), key.as_bytes(), &seal(&message), message.payload.to_vec());
            assert_eq!(opened, message);
        }
    }

    #[test]
    fn a_damaged_envelope_leaves_the_payload() {
        assert_eq!(open("orders".to_owned(), b"", b"{", vec![1]), Outgoing::new("orders", vec![1]));
    }
}
