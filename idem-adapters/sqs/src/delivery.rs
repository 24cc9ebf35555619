//! Converts messages of SQS to deliveries.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName as Name};
use bytes::Bytes;
use idem_core::{Delivery, Properties};
use serde::Deserialize;

use crate::attributes::{Attributes, ENCODING, MESSAGE_ID, decode};
use crate::envelope::{Envelope, Opened};

/// The attributes that the extended client sets: the present name and the former one.
const EXTENDED: [&str; 2] = ["ExtendedPayloadSize", "SQSLargePayloadSize"];

/// The header with the deduplication id of a message in a FIFO queue.
const DEDUPLICATION_ID: &str = "MessageDeduplicationId";

/// The property with the message group.
const GROUP: &str = "message_group_id";

/// What all messages of a queue have in common.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) queue: Arc<str>,
    pub(crate) is_fifo: bool,
    pub(crate) envelope: Envelope,
    /// Whether the worker keeps the order of each group.
    pub(crate) is_ordered: bool,
}

/// Returns the message group, if it orders this queue.
pub(crate) fn group<'a>(origin: &Origin, message: &'a Message) -> Option<&'a str> {
    let group = message.attributes().and_then(|attributes| attributes.get(&Name::MessageGroupId));
    group.map(String::as_str).filter(|_| origin.is_fifo)
}

/// Converts a message. The queue's receive count is not used as the attempt, because it also rises for messages that were
/// only prefetched.
pub(crate) fn delivery(origin: &Origin, message: Message) -> Delivery {
    let ordering_key = group(origin, &message).filter(|_| origin.is_ordered).map(hash);
    let mut system = message.attributes.unwrap_or_default();
    let mut attributes = Attributes::of(message.message_attributes);
    let body = Bytes::from(message.body.unwrap_or_default());
    let received = number(&system, &Name::ApproximateReceiveCount).unwrap_or(1);
    let sent = number(&system, &Name::SentTimestamp).and_then(millis);
    if let Some(id) = system.remove(&Name::MessageDeduplicationId) {
        attributes.extend([(DEDUPLICATION_ID, id)]);
    }
    let group = system.remove(&Name::MessageGroupId);

    let (opened, why) = match open(origin.envelope, &body, &mut attributes) {
        Ok(opened) => (opened, None),
        Err(why) => (Opened { payload: body, ..Opened::default() }, Some(why)),
    };
    let properties: Properties = group.iter().map(|group| (GROUP, group.clone())).collect();
    Delivery::new(Arc::clone(&origin.queue), opened.payload)
        .with_message_id(attributes.take(MESSAGE_ID).or(opened.id).or_else(|| message.message_id.clone()))
        .with_event_type(opened.event_type)
        .with_content_type(attributes.content_type())
        .with_headers(attributes.headers())
        .with_properties(properties)
        // A redrive is another message, with another id.
        .with_position(message.message_id)
        .with_published_at(opened.published_at.or(sent))
        .with_redelivered(received > 1)
        .with_delivery_count(Some(u32::try_from(received.saturating_sub(1)).unwrap_or(u32::MAX)))
        .with_ordering_key(ordering_key)
        .with_partition_key(group.filter(|_| origin.is_fifo).map(Bytes::from))
        .with_unrepresentable(why)
}

/// Opens the envelope, and decodes the payload in it.
fn open(envelope: Envelope, body: &Bytes, attributes: &mut Attributes) -> Result<Opened, String> {
    let mut opened = envelope.open(body, attributes)?;
    // The attributes of an envelope are known by now.
    if let Some(why) = stored_elsewhere(&opened.payload, attributes) {
        return Err(why);
    }
    if let Some(encoding) = attributes.take(ENCODING) {
        opened.payload = decode(&encoding, &opened.payload)?;
    }
    Ok(opened)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pointer {
    s3_bucket_name: String,
    s3_key: String,
}

/// Returns where the payload is, if the extended client has put it into S3.
fn stored_elsewhere(body: &Bytes, attributes: &Attributes) -> Option<String> {
    if !EXTENDED.iter().any(|name| attributes.has(name)) {
        return None;
    }
    let (_, pointer): (String, Pointer) = serde_json::from_slice(body).ok()?;
    Some(format!(
        "the extended client has put its payload into S3, which idem does not read: it is `{}` in the bucket `{}`",
        pointer.s3_key, pointer.s3_bucket_name
    ))
}

fn number(system: &HashMap<Name, String>, name: &Name) -> Option<u64> {
    system.get(name)?.parse().ok()
}

fn millis(millis: u64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

fn hash(group: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    group.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use aws_sdk_sqs::primitives::Blob;
    use aws_sdk_sqs::types::MessageAttributeValue;
    use aws_sdk_sqs::types::builders::MessageBuilder;

    use super::*;

    fn origin(is_fifo: bool) -> Origin {
        Origin { queue: "orders".into(), is_fifo, envelope: Envelope::Plain, is_ordered: is_fifo }
    }

    fn message(body: &str) -> MessageBuilder {
        Message::builder().message_id("m-1").receipt_handle("h").body(body)
    }

    fn text(value: &str) -> MessageAttributeValue {
        typed("String", value)
    }

    fn typed(data_type: &str, value: &str) -> MessageAttributeValue {
        MessageAttributeValue::builder().data_type(data_type).string_value(value).build().unwrap()
    }

    #[test]
    fn attributes_of_each_type_are_headers() {
        let bytes = MessageAttributeValue::builder().data_type("Binary.png").binary_value(Blob::new([0xff, 0]));
        let message = message("{}")
            .message_attributes("tenant", text("acme"))
            .message_attributes("price", typed("Number", "1.10"))
            .message_attributes("bytes", bytes.build().unwrap())
            .message_attributes("tracestate", typed("String.empty", "-"))
            .message_attributes("Content-Type", text("text/plain"));
        let delivery = delivery(&origin(false), message.build());
        let headers = delivery.headers();
        assert_eq!((headers.get_str("tenant"), headers.get_str("price")), (Some("acme"), Some("1.10")));
        assert_eq!((headers.get("bytes"), headers.get("tracestate")), (Some(&[0xff, 0][..]), Some(&[][..])));
        assert_eq!((delivery.content_type(), delivery.message_id()), (Some("text/plain"), Some("m-1")));
        assert_eq!(delivery.position(), Some("m-1"));
    }

    #[test]
    fn a_message_without_a_body_is_empty_and_no_event() {
        let empty = || Message::builder().message_id("m-1").build();
        let plain = delivery(&origin(false), empty());
        assert!(plain.payload().is_empty() && plain.unrepresentable().is_none());
        for envelope in [Envelope::EventBridge, Envelope::Sns] {
            let enveloped = delivery(&Origin { envelope, ..origin(false) }, empty());
            assert!(enveloped.payload().is_empty() && enveloped.unrepresentable().is_some());
        }
    }

    #[test]
    fn the_receive_count_and_the_time_are_read() {
        let first = message("{}").attributes(Name::ApproximateReceiveCount, "1");
        let first = delivery(&origin(false), first.attributes(Name::SentTimestamp, "1700000000123").build());
        assert!(!first.redelivered() && first.delivery_count() == Some(0));
        assert_eq!(first.published_at(), millis(1_700_000_000_123));
        let third = message("{}").attributes(Name::ApproximateReceiveCount, "3").build();
        let third = delivery(&origin(false), third);
        assert!(third.redelivered() && third.delivery_count() == Some(2) && third.attempt() == 1);
    }

    #[test]
    fn the_group_orders_a_fifo_queue_only() {
        let grouped = |group: &str| message("{}").attributes(Name::MessageGroupId, group).build();
        let standard = delivery(&origin(false), grouped("a"));
        assert_eq!((standard.ordering_key(), standard.partition_key()), (None, None), "a fair queue has no order");
        assert_eq!(standard.properties().get("message_group_id"), Some("a"));
        let [one, same, other] = ["a", "a", "b"].map(|group| delivery(&origin(true), grouped(group)));
        assert!(one.ordering_key().is_some() && one.ordering_key() == same.ordering_key());
        assert_ne!(one.ordering_key(), other.ordering_key());
        assert_eq!(one.partition_key(), Some(&b"a"[..]));
        let unordered = Origin { is_ordered: false, ..origin(true) };
        assert_eq!(delivery(&unordered, grouped("a")).ordering_key(), None);
        let deduplicated = message("{}").attributes(Name::MessageDeduplicationId, "d-1").build();
        assert_eq!(delivery(&origin(true), deduplicated).headers().get_str(DEDUPLICATION_ID), Some("d-1"));
    }

    #[test]
    fn a_message_of_an_outbox_has_its_id_and_its_bytes() {
        let encoded = |encoding: &str, body: &str| {
            let message = message(body).message_attributes(MESSAGE_ID, text("o-7"));
            delivery(&origin(false), message.message_attributes(ENCODING, text(encoding)).build())
        };
        let binary = encoded("base64", "/wA=");
        assert_eq!((binary.message_id(), &binary.payload()[..]), (Some("o-7"), &[0xff, 0][..]));
        assert!(binary.headers().is_empty());
        assert!(encoded("empty", "-").payload().is_empty());
        let wrong = encoded("base64", "!");
        assert!(wrong.unrepresentable().is_some_and(|why| why.contains("base64")) && wrong.payload() == "!");
        assert!(encoded("later", "x").unrepresentable().is_some_and(|why| why.contains("\"later\"")));
    }

    #[test]
    fn a_payload_in_s3_is_named() {
        let body = r#"["software.amazon.payloadoffloading.PayloadS3Pointer",{"s3BucketName":"big","s3Key":"k-1"}]"#;
        for name in EXTENDED {
            let message = message(body).message_attributes(name, typed("Number", "300000")).build();
            let delivery = delivery(&origin(false), message);
            let why = delivery.unrepresentable().unwrap();
            assert!(why.contains("`k-1`") && why.contains("`big`"), "{why}");
            assert_eq!(delivery.payload(), body);
        }
        assert_eq!(delivery(&origin(false), message(body).build()).unrepresentable(), None);
        let sns = serde_json::json!({"Type": "Notification", "Message": body, "MessageAttributes":
            {"ExtendedPayloadSize": {"Type": "Number", "Value": "300000"}}});
        let enveloped = Origin { envelope: Envelope::Sns, ..origin(false) };
        let delivery = delivery(&enveloped, message(&sns.to_string()).build());
        assert!(delivery.unrepresentable().is_some_and(|why| why.contains("`k-1`")), "through SNS");
    }
}
