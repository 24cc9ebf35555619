//! What a payload is that a codec cannot decode, as far as its first bytes, its members and its content type tell.

use serde_json::Value;

use crate::Delivery;

/// Removes the byte order mark of UTF-8, which some producers write in front of JSON.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text)
}

/// The first bytes of formats. A longer one stands before a shorter one that it begins with.
const BEGINNINGS: [(&[u8], &str); 14] = [
    (b"\xFF\xFE", "UTF-16 or UTF-32"),
    (b"\xFE\xFF", "UTF-16"),
    (b"{\0", "UTF-16 or UTF-32"),
    (b"\0{", "UTF-16"),
    (b"Obj\x01", "an Avro file"),
    (b"\xC3\x01", "Avro in the single-object encoding"),
    (b"\xAC\xED\0\x05", "a serialized object of Java"),
    (b"\0S", "a section of AMQP 1.0, from a sender whose body is a value: let it send data"),
    (b"<", "XML"),
    (b"\x1F\x8B", "data that is compressed with gzip"),
    (b"\x28\xB5\x2F\xFD", "data that is compressed with zstd"),
    (b"\x04\x22\x4D\x18", "data that is compressed with lz4"),
    (b"\x78\x9C", "data that is compressed with zlib"),
    (b"\x82SNAPPY", "data that is compressed with snappy"),
];

/// The members of envelopes, and their names. The message is inside.
const ENVELOPES: [(&[&str], &str); 5] = [
    (
        &["specversion", "id", "source", "type"],
        "a CloudEvent in structured form: let the producer set the content type `application/cloudevents+json`, and the worker \
         `.cloud_events()`",
    ),
    (&["schema", "payload"], "an envelope of Kafka Connect: set `value.converter.schemas.enable=false` there"),
    (&["op", "before", "after"], "a change event of Debezium: unwrap it there, or decode `before` and `after`"),
    (&["Type", "TopicArn", "Message"], "an envelope of Amazon SNS: turn on raw message delivery"),
    (&["messageType", "message"], "an envelope of MassTransit: let it send raw JSON"),
];

/// Describes a payload that is not of this media type, to be added to the error of its codec. `None` if there is nothing to
/// say.
pub(super) fn found(delivery: &Delivery, wanted: &str) -> Option<String> {
    let data = &delivery.data()[..];
    if data.is_empty() {
        return Some("the payload is empty".to_owned());
    }
    if let Some((_, what)) = BEGINNINGS.iter().find(|(beginning, _)| data.starts_with(beginning)) {
        return Some(format!(
            "the payload looks like {what}; a codec of your own can read it: `Worker::codec` or `HandlerOptions::codec`"
        ));
    }
    if let [0, a, b, c, d, _, ..] = *data {
        let id = u32::from_be_bytes([a, b, c, d]);
        return Some(format!("the payload looks like a message of a schema registry, with the schema id {id}"));
    }
    if let Some(what) = envelope(data) {
        return Some(format!("the payload looks like {what}"));
    }
    let kind = delivery.content_type().filter(|kind| !kind.to_ascii_lowercase().contains(wanted))?;
    Some(format!("the content type of the delivery is {kind:?}"))
}

fn envelope(data: &[u8]) -> Option<&'static str> {
    match serde_json::from_slice(without_mark(data)).ok()? {
        Value::Object(members) => {
            let has_all = |names: &[&str]| names.iter().all(|name| members.contains_key(*name));
            ENVELOPES.iter().find(|(names, _)| has_all(names)).map(|(_, what)| *what)
        }
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => Some("JSON that was encoded twice"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Codec, DecodeError, Delivery, Json};

    #[derive(Debug, serde::Deserialize)]
    struct Paid {
        id: i64,
    }

    fn error(delivery: &Delivery) -> String {
        let decoded: Result<Paid, _> = Json.decode(delivery);
        let Err(DecodeError::Undecodable(error)) = decoded else { panic!("{decoded:?}") };
        error.to_string()
    }

    #[test]
    fn json_behind_a_byte_order_mark_is_decoded() {
        let paid: Result<Paid, _> = Json.decode(&Delivery::new("orders", &b"\xEF\xBB\xBF{\"id\": 7}"[..]));
        assert_eq!(paid.unwrap().id, 7);
    }

    #[test]
    fn an_error_names_what_the_payload_looks_like() {
        let table: [(&[u8], &str); 13] = [
            (b"", "the payload is empty"),
            (b"\x1F\x8B\x08\0\0", "gzip"),
            (b"\x28\xB5\x2F\xFD\0", "zstd"),
            (b"\xFF\xFE{\0\"\0", "UTF-16"),
            (b"{\0\"\0", "UTF-16"),
            (b"\0{\0\"", "UTF-16"),
            (b"\0\0\0\0\x07\x02", "schema id 7"),
            (b"\0SwS\0", "AMQP 1.0"),
            (
                br#"{"specversion":"1.0","id":"7","source":"/shop","type":"paid","data":{"id":7}}"#,
                "application/cloudevents+json",
            ),
            (br#"{"schema":{},"payload":{"id":7}}"#, "Kafka Connect"),
            (br#""{\"id\":7}""#, "encoded twice"),
            (b"<paid/>", "XML"),
            (b"Obj\x01\0", "Avro"),
        ];
        for (payload, expected) in table {
            let error = error(&Delivery::new("orders", payload));
            assert!(error.contains(expected), "{payload:?}: {error}");
        }
    }

    #[test]
    fn an_error_names_the_type_that_the_producer_names() {
        let typed = |kind: &str| error(&Delivery::new("orders", "?").with_content_type(Some(kind.to_owned())));
        assert!(typed("application/x-protobuf").contains("x-protobuf"));
        assert!(!typed("application/json").contains("content type"));
    }
}
