//! The envelopes that EventBridge and SNS put around a message.

use std::time::SystemTime;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::attributes::Attributes;

/// What the body of a message is.
///
/// | | [`Plain`](Self::Plain) | [`EventBridge`](Self::EventBridge) | [`Sns`](Self::Sns) |
/// |---|---|---|---|
/// | payload | body | `detail`, byte for byte | `Message` |
/// | message id | attribute `message-id`, or SQS's `MessageId` | the resource `urn:idem:message:<id>`, or `id` | attribute `message-id`, or SNS's `MessageId` |
/// | event type | none | `detail-type` | none |
/// | publication | `SentTimestamp` | `SentTimestamp`, or `time` if it is replayed from an archive | `Timestamp` |
/// | headers | attributes | `source`, and a `resources` for each of them | attributes, `TopicArn`, `Subject` |
///
/// A body that is no such envelope becomes a dead letter with the reason
/// [`Unrepresentable`](idem_core::Reason::Unrepresentable), and keeps its whole body as payload. So does a confirmation of a
/// subscription, which SNS sends to a queue that it does not know.
///
/// An event that is replayed from an archive is as old as its `time`: if its claim may have been pruned, it is not handled again.
/// Otherwise `time`, which the producer may set to any time, is not used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Envelope {
    /// The body is the payload: that of a producer, of idem's relay, or of SNS with raw message delivery.
    #[default]
    Plain,
    /// The event of an EventBridge rule, without an input transformer.
    EventBridge,
    /// The notification of an SNS topic, without raw message delivery.
    Sns,
}

/// The beginning of the resource with the id of a message of an outbox.
pub(crate) const URN: &str = "urn:idem:message:";

/// The content of an envelope.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) payload: Bytes,
    pub(crate) id: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) published_at: Option<SystemTime>,
}

impl Envelope {
    /// Opens an envelope. The headers that are in it are added to the attributes.
    ///
    /// # Errors
    /// It is no such envelope, for this reason.
    pub(crate) fn open(self, body: &Bytes, attributes: &mut Attributes) -> Result<Opened, String> {
        match self {
            Self::Plain => Ok(Opened { payload: body.clone(), ..Opened::default() }),
            Self::EventBridge => event(body, attributes),
            Self::Sns => notification(body, attributes),
        }
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    id: Option<String>,
    #[serde(rename = "detail-type")]
    detail_type: Option<String>,
    source: Option<String>,
    /// The producer's, if it has set one.
    time: Option<String>,
    /// The name of the replay, if the event comes from an archive.
    #[serde(rename = "replay-name")]
    replay: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
}

fn event(body: &Bytes, attributes: &mut Attributes) -> Result<Opened, String> {
    let event: Event<'_> =
        serde_json::from_slice(body).map_err(|error| format!("its body is not an event of EventBridge: {error}"))?;
    let detail = event.detail.ok_or(
        "its body is not an event of EventBridge, because it has no `detail`: the rule has an input transformer, or the message was sent without EventBridge",
    )?;
    let own = event.resources.iter().find_map(|resource| resource.strip_prefix(URN)).map(ToOwned::to_owned);
    attributes.extend(event.source.map(|source| ("source", source)));
    attributes.extend(event.resources.into_iter().map(|resource| ("resources", resource)));
    Ok(Opened {
        payload: body.slice_ref(detail.get().as_bytes()),
        id: own.or(event.id),
        event_type: event.detail_type,
        published_at: event.replay.and(event.time).as_deref().and_then(time),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Notification {
    r#type: String,
    message_id: Option<String>,
    topic_arn: Option<String>,
    subject: Option<String>,
    message: Option<String>,
    timestamp: Option<String>,
    #[serde(default)]
    message_attributes: std::collections::BTreeMap<String, Attribute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    r#type: String,
    value: String,
}

fn notification(body: &Bytes, attributes: &mut Attributes) -> Result<Opened, String> {
    let notification: Notification = serde_json::from_slice(body).map_err(|error| {
        format!("its body is not a notification of SNS, as with raw message delivery, which needs no envelope: {error}")
    })?;
    let kind = notification.r#type;
    let message = notification.message.filter(|_| kind == "Notification").ok_or_else(|| {
        format!("it is not a notification of SNS, but a {kind:?}: whoever owns the topic must confirm the subscription")
    })?;
    for (name, attribute) in notification.message_attributes {
        attributes.add(name, &attribute.r#type, attribute.value.into());
    }
    attributes.extend(notification.topic_arn.map(|topic| ("TopicArn", topic)));
    attributes.extend(notification.subject.map(|subject| ("Subject", subject)));
    Ok(Opened {
        payload: message.into(),
        id: notification.message_id,
        event_type: None,
        published_at: notification.timestamp.as_deref().and_then(time),
    })
}

fn time(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn open(envelope: Envelope, body: &'static str) -> (Result<Opened, String>, Vec<(String, String)>) {
        let mut attributes = Attributes::default();
        let opened = envelope.open(&body.into(), &mut attributes);
        let headers = attributes.headers();
        let text = |(name, value): (&str, &[u8])| (name.to_owned(), String::from_utf8_lossy(value).into_owned());
        (opened, headers.iter().map(text).collect())
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn an_event_is_its_detail_byte_for_byte() {
        let (opened, headers) = open(
            Envelope::EventBridge,
            r#"{"version":"0","id":"e-1","detail-type":"OrderPaid","source":"shop","account":"1","region":"r",
                "time":"2023-11-14T22:13:20Z","replay-name":"r-1","resources":["arn:aws:x"],"detail":{"n": 1.10}}"#,
        );
        let opened = opened.unwrap();
        assert_eq!(opened.payload, r#"{"n": 1.10}"#);
        assert_eq!((opened.id.as_deref(), opened.event_type.as_deref()), (Some("e-1"), Some("OrderPaid")));
        assert_eq!(opened.published_at, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
        assert_eq!(headers, [pair("source", "shop"), pair("resources", "arn:aws:x")]);
    }

    #[test]
    fn an_event_is_as_old_as_its_time_only_if_it_is_replayed() {
        let event = r#"{"time":"2023-11-14T22:13:20Z","detail":{}}"#;
        assert_eq!(open(Envelope::EventBridge, event).0.unwrap().published_at, None, "the producer has set it");
    }

    #[test]
    fn the_id_of_an_outbox_comes_before_that_of_the_event() {
        let (opened, _) =
            open(Envelope::EventBridge, r#"{"id":"e-1","resources":["arn:aws:x","urn:idem:message:o-7"],"detail":{}}"#);
        assert_eq!(opened.unwrap().id.as_deref(), Some("o-7"));
    }

    #[test]
    fn a_body_that_is_no_event_says_why() {
        for (body, says) in
            [("{}", "no `detail`"), ("[]", "not an event"), ("", "not an event"), ("{\"detail\":", "not an")]
        {
            let why = open(Envelope::EventBridge, body).0.unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn a_notification_is_its_message_with_its_attributes() {
        let (opened, headers) = open(
            Envelope::Sns,
            r#"{"Type":"Notification","MessageId":"s-1","TopicArn":"arn:aws:sns:r:1:t","Subject":"hello",
                "Message":"{\"n\":1}","Timestamp":"2023-11-14T22:13:20.000Z","SignatureVersion":"1",
                "MessageAttributes":{"tenant":{"Type":"String","Value":"acme"},"bytes":{"Type":"Binary","Value":"/wA="}}}"#,
        );
        let opened = opened.unwrap();
        assert_eq!((opened.payload.as_ref(), opened.id.as_deref()), (&br#"{"n":1}"#[..], Some("s-1")));
        assert!(opened.published_at.is_some());
        assert_eq!(headers[1], pair("tenant", "acme"));
        assert_eq!(headers[2..], [pair("TopicArn", "arn:aws:sns:r:1:t"), pair("Subject", "hello")]);
    }

    #[test]
    fn a_confirmation_of_a_subscription_is_named() {
        let body = r#"{"Type":"SubscriptionConfirmation","MessageId":"s-1","Token":"t","Message":"You have chosen"}"#;
        let why = open(Envelope::Sns, body).0.unwrap_err();
        assert!(why.contains("SubscriptionConfirmation"), "{why}");
        assert!(open(Envelope::Sns, "{}").0.is_err());
    }
}
