//! A staged message as SQS sends it.

use std::collections::HashMap;

use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idem_core::{Key, SinkError, StagedMessage};
use sha2::{Digest, Sha256};

use crate::attributes::{BASE64, EMPTY, EMPTY_TYPE, ENCODING, MESSAGE_ID, PLACEHOLDER};

/// The attributes with the key and the event type of a message.
const KEY: &str = "idem-key";
const EVENT_TYPE: &str = "event-type";
const CONTENT_TYPE: &str = "content-type";

/// Headers that no message must fail for, the least important first.
const TELEMETRY: [&str; 3] = ["baggage", "tracestate", "traceparent"];

/// The prefix of the attributes of a CloudEvent.
const CLOUD_EVENT: &str = "ce-";

/// The maximum size of a message with its attributes, and of all messages of a request.
pub(crate) const LARGEST: usize = 1024 * 1024;

/// The maximum number of attributes.
const MOST: usize = 10;

/// The maximum length of a group id.
const LONGEST_GROUP: usize = 128;

/// A message that SQS can carry.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    body: String,
    attributes: HashMap<String, MessageAttributeValue>,
    /// The group and the deduplication id, for a FIFO queue.
    fifo: Option<(String, String)>,
    pub(crate) size: usize,
}

impl Outgoing {
    /// Converts a message to `queue`.
    ///
    /// # Errors
    /// SQS cannot carry it.
    pub(crate) fn new(message: &StagedMessage, queue: &str, cloud_events: Option<&str>) -> Result<Self, SinkError> {
        let id = message.id().to_string();
        let (body, encoding) = body(message.payload());
        let mut attributes = Attributes::default();
        for (name, value) in message.headers().iter() {
            attributes.add(name, value)?;
        }
        for (name, value) in cloud_events.map(|source| message.cloud_event(source)).transpose()?.unwrap_or_default() {
            attributes.set(&format!("{CLOUD_EVENT}{name}"), value.as_bytes())?;
        }
        attributes.set(MESSAGE_ID, id.as_bytes())?;
        // A CloudEvent has it as `ce-type`.
        let event_type = message.event_type().filter(|_| cloud_events.is_none());
        let texts = [(EVENT_TYPE, event_type), (CONTENT_TYPE, message.content_type()), (ENCODING, encoding)];
        for (name, text) in texts {
            if let Some(text) = text {
                attributes.set(name, text.as_bytes())?;
            }
        }
        if let Some(key) = message.key() {
            attributes.set(KEY, key.as_bytes())?;
        }
        let Attributes(mut attributes) = attributes;
        for name in TELEMETRY {
            if attributes.len() > MOST {
                attributes.remove(name);
            }
        }
        if attributes.len() > MOST {
            return Err(SinkError::message(format!(
                "it has {} attributes with those of idem ({MESSAGE_ID}, and what else it has of {EVENT_TYPE}, {CONTENT_TYPE}, \
                 {KEY}, {ENCODING} and the {CLOUD_EVENT}* of a CloudEvent), and SQS allows {MOST}: send fewer headers",
                attributes.len()
            )));
        }
        let size = body.len() + attributes.iter().map(size).sum::<usize>();
        if size > LARGEST {
            let payload = message.payload().len();
            return Err(SinkError::message(format!(
                "its payload has {payload} bytes, which are {size} with attributes and encoding, and SQS takes at most \
                 {LARGEST}: send less, or a reference"
            )));
        }
        let fifo = queue.ends_with(".fifo").then(|| (group(message.key(), &id), id));
        Ok(Self { body, attributes, fifo, size })
    }

    /// Returns the entry with this number.
    pub(crate) fn entry(&self, number: usize) -> Result<SendMessageBatchRequestEntry, BuildError> {
        let (group, deduplication) = self.fifo.clone().unzip();
        SendMessageBatchRequestEntry::builder()
            .id(number.to_string())
            .message_body(&self.body)
            .set_message_attributes(Some(self.attributes.clone()))
            .set_message_group_id(group)
            .set_message_deduplication_id(deduplication)
            .build()
    }
}

/// Returns the size of an attribute, as SQS counts it.
fn size((name, value): (&String, &MessageAttributeValue)) -> usize {
    let text = value.string_value().map_or(0, str::len);
    name.len() + value.data_type().len() + text + value.binary_value().map_or(0, |bytes| bytes.as_ref().len())
}

#[derive(Default)]
struct Attributes(HashMap<String, MessageAttributeValue>);

impl Attributes {
    /// Adds a header of the message.
    fn add(&mut self, name: &str, value: &[u8]) -> Result<(), SinkError> {
        if self.0.contains_key(name) {
            return Err(SinkError::message(format!("it has several headers `{name}`, and SQS carries only one")));
        }
        self.set(name, value)
    }

    /// Sets an attribute, instead of another one of this name.
    fn set(&mut self, name: &str, value: &[u8]) -> Result<(), SinkError> {
        if !is_name(name) {
            return Err(SinkError::message(format!(
                "SQS cannot carry the header name {name:?}: use up to 256 letters, digits, hyphens, underscores and single dots \
                 between others, and do not begin with AWS. or Amazon."
            )));
        }
        let attribute = MessageAttributeValue::builder();
        let attribute = match std::str::from_utf8(value) {
            Ok("") => attribute.data_type(EMPTY_TYPE).string_value(PLACEHOLDER),
            Ok(text) if is_text(text) => attribute.data_type("String").string_value(text),
            _ => attribute.data_type("Binary").binary_value(Blob::new(value)),
        };
        let attribute = attribute.build().map_err(SinkError::message)?;
        self.0.insert(name.to_owned(), attribute);
        Ok(())
    }
}

/// Returns the body for a payload, and how it is encoded. SQS replaces characters that it does not allow, and reports nothing.
fn body(payload: &[u8]) -> (String, Option<&'static str>) {
    match std::str::from_utf8(payload) {
        Ok("") => (PLACEHOLDER.to_owned(), Some(EMPTY)),
        Ok(text) if is_text(text) => (text.to_owned(), None),
        _ => (STANDARD.encode(payload), Some(BASE64)),
    }
}

/// Returns whether SQS allows all of these characters.
fn is_text(text: &str) -> bool {
    text.chars().all(|char| matches!(char, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..))
}

/// Returns whether SQS allows an attribute of this name.
fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let begins = |prefix: &str| name.get(..prefix.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(prefix));
    (1..=256).contains(&name.len())
        && name.bytes().all(is_allowed)
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
        && !begins("aws.")
        && !begins("amazon.")
}

/// Returns the group of a message: its key, or a hash of a key that SQS does not allow. A message without a key is alone in its
/// group.
fn group(key: Option<&Key>, id: &str) -> String {
    let Some(key) = key else { return id.to_owned() };
    let is_allowed =
        |text: &&str| (1..=LONGEST_GROUP).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    match std::str::from_utf8(key.as_bytes()).ok().filter(is_allowed) {
        Some(text) => text.to_owned(),
        None => hex::encode(Sha256::digest(key.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use idem_core::Outgoing as Staged;

    use super::*;

    const ID: &str = "00000000-0000-0000-0000-000000000007";

    fn outgoing(queue: &str, staged: Staged) -> Result<Outgoing, SinkError> {
        Outgoing::new(&StagedMessage::new(ID.parse().unwrap(), staged), queue, None)
    }

    fn refusal(staged: Staged) -> String {
        match outgoing("orders", staged) {
            Err(SinkError::Message(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_payload_that_sqs_would_change_is_encoded() {
        for (payload, expected) in [
            (&b"{}"[..], ("{}", None)),
            (
                "\t\r\n \u{e9}\u{d7ff}\u{e000}\u{fffd}\u{10ffff}".as_bytes(),
                ("\t\r\n \u{e9}\u{d7ff}\u{e000}\u{fffd}\u{10ffff}", None),
            ),
            (b"", ("-", Some("empty"))),
            (b"\0", ("AA==", Some("base64"))),
            ("\u{ffff}".as_bytes(), ("77+/", Some("base64"))),
            (&[0xff], ("/w==", Some("base64"))),
        ] {
            let (body, encoding) = body(payload);
            assert_eq!((&*body, encoding), expected);
        }
    }

    #[test]
    fn the_group_is_the_key_or_its_hash_and_the_id_without_one() {
        let group = |staged: Staged| outgoing("orders.fifo", staged).unwrap().fifo.unwrap();
        assert_eq!(group(Staged::new("", "{}").key("order-7")), ("order-7".to_owned(), ID.to_owned()));
        assert_eq!(group(Staged::new("", "{}")), (ID.to_owned(), ID.to_owned()));
        for key in ["order 7", "\u{e9}", &"x".repeat(129)] {
            let (group, _) = group(Staged::new("", "{}").key(key.to_owned()));
            assert!(group.len() == 64 && group.bytes().all(|byte| byte.is_ascii_hexdigit()), "{group}");
        }
        assert!(outgoing("orders", Staged::new("", "{}").key(7)).unwrap().fifo.is_none());
    }

    #[test]
    fn a_cloud_event_with_the_context_of_a_trace_has_room_and_what_does_not_fit_of_that_is_dropped() {
        let staged = TELEMETRY.iter().fold(Staged::new("orders", "{}"), |staged, name| staged.header(*name, "1"));
        let staged = staged.key(7).event_type("paid").content_type("application/json");
        let staged = StagedMessage::new(ID.parse().unwrap(), staged);
        let attributes = |source| Outgoing::new(&staged, "orders", source).unwrap().attributes;
        let event = attributes(Some("/shop"));
        assert!(event.len() == MOST && event.contains_key("traceparent") && event.contains_key("ce-type"), "{event:?}");
        assert!(attributes(None).contains_key("baggage"), "it fits");
    }

    #[test]
    fn what_sqs_cannot_carry_is_named() {
        let staged = || Staged::new("", "{}");
        for name in ["a:b", "\u{e9}", "AWS.x", "amazon.x", ".a", "a..b", ""] {
            assert!(refusal(staged().header(name, "1")).contains(&format!("{name:?}")), "{name}");
        }
        assert!(refusal(staged().header("a", "1").header("a", "2")).contains("several headers `a`"));
        let many = (0..10).fold(staged(), |staged, number| staged.header(format!("h{number}"), "1"));
        assert!(refusal(many).contains("11 attributes"));
        assert!(refusal(Staged::new("", vec![b'x'; LARGEST])).contains("1048576"));
        assert!(outgoing("orders", Staged::new("", vec![b'x'; LARGEST - 100])).is_ok());
    }
}
