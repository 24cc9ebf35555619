//! Conversion of messages that lapin cannot parse.

use std::sync::Arc;

use amq_protocol::protocol::basic::parse_properties;
use amq_protocol::types::parsing::parse_value;
use idem_core::{Delivery, Headers};
use lapin::BasicProperties;
use lapin::types::AMQPValue;

use crate::bare::Message;
use crate::delivery::{VOLATILE, Way, delivery, number, value_bytes};
use crate::properties::{CONTENT_TYPE, CORRELATION_ID, MESSAGE_ID, Properties, REPLY_TO, TYPE, is_text};

/// The header that contains the whole property list, as bytes.
pub(crate) const LIST: &str = "idem-amqp-properties";

/// The broker changes a count in the list at each delivery, so the list is volatile too. The reason names the parts
/// that cannot be parsed.
const VOLATILE_HERE: &[&str] = &[VOLATILE[0], VOLATILE[1], VOLATILE[2], LIST];

/// Converts a message that was read as bytes, to the same delivery as lapin's where lapin could parse it.
pub(crate) fn read(queue: &Arc<str>, mut message: Message) -> Delivery {
    let body = std::mem::take(&mut message.body);
    match readable(&message) {
        Some((way, properties)) => delivery(queue, body, way, &properties),
        None => unreadable(queue, &message, body),
    }
}

fn readable(message: &Message) -> Option<(Way<'_>, BasicProperties)> {
    let exchange = std::str::from_utf8(&message.exchange).ok()?;
    let routing_key = std::str::from_utf8(&message.routing_key).ok()?;
    match parse_properties(message.properties.as_slice()) {
        Ok(([], properties)) => Some((Way { exchange, routing_key, redelivered: message.redelivered }, properties)),
        _ => None,
    }
}

/// Keeps the whole message: text parts as text, and the property list as it was received.
fn unreadable(queue: &Arc<str>, message: &Message, body: Vec<u8>) -> Delivery {
    let (properties, volatile, why) = match Properties::read(&message.properties) {
        Ok(properties) => (properties, VOLATILE_HERE, ""),
        // Then only the list distinguishes the message from others.
        Err(properties) => (properties, &VOLATILE[..], "its property list makes no sense. "),
    };
    let why = why.to_owned() + &reasons(message, &properties);
    let count = properties.headers.iter().find(|(name, _)| *name == VOLATILE[0].as_bytes());
    let count = count.filter(|_| message.redelivered).and_then(|(_, value)| number(&parsed(value)?));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut headers: Headers = properties.headers.iter().map(|(name, value)| (text(name), shown(value))).collect();
    headers.push(LIST, message.properties.clone());
    let other = |name| properties.others.iter().find(|(other, _)| *other == name).map(|(_, bytes)| text(bytes));
    let exchange = Some(text(&message.exchange)).filter(|exchange| !exchange.is_empty());
    Delivery::new(Arc::clone(queue), body)
        .with_headers(headers)
        .with_message_id(properties.message_id.map(text))
        .with_event_type(properties.kind.map(text))
        .with_subject(Some(text(&message.routing_key)))
        .with_content_type(other(CONTENT_TYPE))
        .with_correlation_id(other(CORRELATION_ID))
        .with_reply_to(other(REPLY_TO))
        .with_properties(exchange.map(|exchange| ("exchange", exchange)).into_iter().collect())
        .with_volatile_headers(volatile)
        .with_redelivered(message.redelivered)
        .with_delivery_count(count)
        .with_unrepresentable(Some(why.trim_end()))
}

/// Converts a value as in any other message; a value that contains a name that is not UTF-8 stays as raw bytes.
fn shown(value: &[u8]) -> bytes::Bytes {
    parsed(value).map_or_else(|| bytes::Bytes::copy_from_slice(value), |value| value_bytes(&value))
}

fn parsed(value: &[u8]) -> Option<AMQPValue> {
    match parse_value(value) {
        Ok(([], value)) => Some(value),
        _ => None,
    }
}

/// Describes every part that its text does not fully represent, so that the reason distinguishes two messages.
fn reasons(message: &Message, properties: &Properties<'_>) -> String {
    let of_headers = properties.headers.iter().map(|(name, _)| ("the name of a header", *name));
    let mut reasons: String = [("the exchange's name", &*message.exchange), ("the routing key", &message.routing_key)]
        .into_iter()
        .chain(properties.message_id.map(|id| (MESSAGE_ID, id)))
        .chain(properties.kind.map(|kind| (TYPE, kind)))
        .chain(properties.others.iter().copied())
        .chain(of_headers)
        .filter(|(_, bytes)| !is_text(bytes))
        .map(|(what, bytes)| format!("{what} is not UTF-8: its bytes are {}. ", hex::encode(bytes)))
        .collect();
    for (name, _) in properties.headers.iter().filter(|(_, value)| parsed(value).is_none()) {
        reasons += &format!("the header {:?} holds a name that is not UTF-8. ", String::from_utf8_lossy(name));
    }
    if reasons.is_empty() {
        reasons += "lapin cannot read it. ";
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(properties: &[u8]) -> Message {
        let (exchange, routing_key) = (b"shop".to_vec(), b"orders.paid".to_vec());
        let (properties, body) = (properties.to_vec(), b"{}".to_vec());
        Message { exchange, routing_key, properties, body, redelivered: true, ..Default::default() }
    }

    /// A list with the message id `id`, one header, and a delivery count set by the broker.
    fn list(id: &[u8], header: &[u8], count: u8) -> Vec<u8> {
        let counted = [&[16][..], b"x-delivery-count", &[b'b', count]].concat();
        let table = [header, &counted].concat();
        [&[0x20, 0x80, 0, 0, 0, table.len() as u8], &table[..], &[id.len() as u8], id].concat()
    }

    const HEADER: &[u8] = &[1, b'h', b'S', 0, 0, 0, 1, 0xFF];
    const BAD_NAME: &[u8] = &[2, b'h', 0xFE, b'S', 0, 0, 0, 1, b'v'];
    const BAD_INSIDE: &[u8] = &[1, b'h', b'F', 0, 0, 0, 4, 2, b'n', 0xFD, b'V'];

    #[test]
    fn a_message_that_lapin_can_read_is_what_lapin_makes_of_it() {
        let delivery = read(&"q".into(), message(&list(b"id", HEADER, 3)));
        assert_eq!((delivery.unrepresentable(), delivery.message_id()), (None, Some("id")));
        assert_eq!((delivery.delivery_count(), delivery.redelivered()), (Some(3), true));
        assert_eq!(delivery.headers().get("h"), Some(&[0xFF][..]));
        assert_eq!(delivery.headers().get(LIST), None);
        assert_eq!((delivery.subject(), delivery.properties().get("exchange")), (Some("orders.paid"), Some("shop")));
    }

    #[test]
    fn one_that_lapin_cannot_read_keeps_all_and_says_why() {
        for (id, header, why) in [
            (&[b'i', 0xF0][..], HEADER, "message id is not UTF-8: its bytes are 69f0."),
            (b"id", BAD_NAME, "the name of a header is not UTF-8: its bytes are 68fe."),
            (b"id", BAD_INSIDE, "the header \"h\" holds a name that is not UTF-8."),
        ] {
            let list = list(id, header, 3);
            let delivery = read(&"q".into(), message(&list));
            assert_eq!(delivery.unrepresentable(), Some(why));
            assert_eq!(delivery.headers().get(LIST), Some(&*list));
            assert_eq!(delivery.message_id(), Some(&*String::from_utf8_lossy(id)));
            assert_eq!((delivery.payload(), delivery.delivery_count()), (&"{}".into(), Some(3)));
            assert_eq!(delivery.headers().len(), 3);
            assert_eq!(
                (delivery.subject(), delivery.properties().get("exchange")),
                (Some("orders.paid"), Some("shop"))
            );
        }
        let mut routed = message(&[0, 0]);
        routed.routing_key = vec![0xFF];
        let delivery = read(&"q".into(), routed);
        assert_eq!(delivery.unrepresentable(), Some("the routing key is not UTF-8: its bytes are ff."));
        assert_eq!(delivery.subject(), Some("\u{fffd}"));
        // A content type, a correlation id that is not UTF-8, and a reply-to.
        let delivery = read(&"q".into(), message(&[0x86, 0, 1, b'c', 1, 0xFE, 1, b'r']));
        assert_eq!(delivery.unrepresentable(), Some("correlation id is not UTF-8: its bytes are fe."));
        assert_eq!((delivery.content_type(), delivery.correlation_id()), (Some("c"), Some("\u{fffd}")));
        assert_eq!(delivery.reply_to(), Some("r"));
        let delivery = read(&"q".into(), message(&[0, 0x80, 9]));
        assert!(delivery.unrepresentable().unwrap().contains("makes no sense"), "{delivery:?}");
    }
}
