//! A staged message as AMQP sends it.

use std::time::UNIX_EPOCH;

use amq_protocol::protocol::AMQPClass;
use amq_protocol::protocol::basic::{AMQPMethod, Publish};
use idem_core::{SinkError, StagedMessage};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::raw::{CHANNEL, Encoded, body, header, method};

/// The header with the key of a message.
pub(crate) const KEY: &str = "idem-key";

/// The prefix of the attributes of a CloudEvent. AMQP's own is `cloudEvents:`, and its second form is this one.
const CLOUD_EVENT: &str = "cloudEvents_";

/// Headers that RabbitMQ itself reads: it closes the channel if they are not lists of routing keys.
const RESERVED: [&str; 2] = ["CC", "BCC"];

/// The bytes of a frame besides its content.
const FRAME: usize = 8;

/// `basic.publish` sets this, so that the server stores the message on disk.
const PERSISTENT: u8 = 2;

/// Encodes a message to an exchange, as a CloudEvent if their source is given, in frames of at most this size.
///
/// # Errors
/// AMQP cannot carry it.
pub(crate) fn encode(
    message: &StagedMessage,
    exchange: &str,
    cloud_events: Option<&str>,
    frame_max: usize,
) -> Result<Encoded, SinkError> {
    let publish = Publish {
        exchange: exchange.into(),
        routing_key: short("routing key", message.to())?,
        mandatory: true,
        immediate: false,
    };
    let id = message.id().to_string();
    let properties = properties(message, cloud_events)?.with_message_id(id.as_str().into());
    let payload = message.payload();
    let mut frames = method(CHANNEL, &AMQPClass::Basic(AMQPMethod::Publish(publish))).map_err(SinkError::message)?;
    let mut head = header(CHANNEL, payload.len(), &properties).map_err(SinkError::message)?;
    if head.len() > frame_max {
        return Err(SinkError::message(format!(
            "its headers have {} bytes, and RabbitMQ takes {frame_max} in one frame: send fewer or shorter headers",
            head.len()
        )));
    }
    frames.reserve(head.len() + payload.len() + FRAME);
    frames.append(&mut head);
    for part in payload.chunks(frame_max - FRAME) {
        frames.append(&mut body(CHANNEL, part).map_err(SinkError::message)?);
    }
    Ok(Encoded { id, routing_key: message.to().to_owned(), frames })
}

fn properties(message: &StagedMessage, cloud_events: Option<&str>) -> Result<BasicProperties, SinkError> {
    let staged_at = message.staged_at().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_timestamp(staged_at.as_secs())
        .with_headers(headers(message, cloud_events)?);
    if let Some(event_type) = message.event_type() {
        properties = properties.with_type(short("event type", event_type)?);
    }
    if let Some(content_type) = message.content_type() {
        properties = properties.with_content_type(short("content type", content_type)?);
    }
    Ok(properties)
}

/// Returns the message's headers, and those of the sink, which replace others of the same name.
fn headers(message: &StagedMessage, cloud_events: Option<&str>) -> Result<FieldTable, SinkError> {
    let mut table = FieldTable::default();
    for (name, value) in message.headers().iter() {
        if RESERVED.contains(&name) {
            return Err(SinkError::message(format!("RabbitMQ reads the header `{name}` itself: use another name")));
        }
        let name = short("name of a header", name)?;
        if table.inner().contains_key(&name) {
            return Err(SinkError::message(format!(
                "it has the header `{name}` twice, and AMQP carries one of a name"
            )));
        }
        table.insert(name, AMQPValue::LongString(value.into()));
    }
    if let Some(key) = message.key() {
        table.insert(KEY.into(), AMQPValue::LongString(key.as_bytes().into()));
    }
    for (name, value) in cloud_events.map(|source| message.cloud_event(source)).transpose()?.unwrap_or_default() {
        table.insert(format!("{CLOUD_EVENT}{name}").into(), AMQPValue::LongString(value.into()));
    }
    Ok(table)
}

/// Returns a short string. lapin panics at a longer one.
fn short(what: &str, text: &str) -> Result<ShortString, SinkError> {
    ShortString::try_new(text)
        .map_err(|_| SinkError::message(format!("the {what} has {} bytes, and AMQP carries 255", text.len())))
}

#[cfg(test)]
mod tests {
    use idem_core::Outgoing;
    use lapin::types::LongString;

    use super::*;

    fn message(outgoing: Outgoing) -> StagedMessage {
        StagedMessage::new("00000000-0000-0000-0000-000000000007".parse().unwrap(), outgoing)
    }

    #[test]
    fn a_payload_is_split_into_frames() {
        let encoded = |size: usize| encode(&message(Outgoing::new("q", vec![1; size])), "", None, 4096);
        let frames = |size: usize| encoded(size).unwrap().frames.len();
        let empty = frames(0);
        assert_eq!(frames(4088), empty + 4096);
        assert_eq!(frames(4089), empty + 4096 + 9);
    }

    #[test]
    fn the_headers_of_the_sink_replace_others() {
        let outgoing = Outgoing::new("q", "").key(7).header(KEY, "9").header("cloudEvents_id", "9");
        let table = headers(&message(outgoing), Some("/shop")).unwrap();
        let value = |name: &str| match table.inner().get(name) {
            Some(AMQPValue::LongString(value)) => value.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(value(KEY), LongString::from("7"));
        assert_eq!(value("cloudEvents_id"), LongString::from("00000000-0000-0000-0000-000000000007"));
        assert_eq!(value("cloudEvents_source"), LongString::from("/shop"));
    }
}
