//! A message that is to be published.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use crate::{BoxError, Headers, Key, KeyPart};

/// The maximum length of a destination, a type, a content type or the name of a header, in bytes: that of a short
/// string in AMQP.
const SHORT: usize = 255;

/// A message that is to be published: staged in a transaction, and published by a [relay](crate::Sink) after the commit.
///
/// Setters accept any value. A value that no broker can carry, such as a key of 300 bytes or a header without a name, is
/// an error when the message is staged.
///
/// ```
/// # use idem_core::Outgoing;
/// # #[derive(serde::Serialize)] struct InvoiceRequested { order_id: i64 }
/// let message = Outgoing::json("invoice.requested", &InvoiceRequested { order_id: 7 })?
///     .key(7)                                     // messages of one key arrive in the order in which they were staged
///     .event_type("invoice.requested.v1")
///     .header("tenant", "acme");
/// assert_eq!((message.to(), message.payload()), ("invoice.requested", &br#"{"order_id":7}"#[..]));
/// # Ok::<(), idem_core::BoxError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Outgoing {
    pub(crate) to: String,
    pub(crate) payload: Bytes,
    pub(crate) content_type: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) key: Option<Key>,
    pub(crate) id: Option<Uuid>,
    pub(crate) headers: Headers,
    /// Whether it is for the handler of this name, without a broker.
    pub(crate) is_local: bool,
    /// The first value that was set and that cannot be sent.
    pub(crate) undeliverable: Option<String>,
}

impl Outgoing {
    /// Creates a message of these bytes. `to` is the routing key on RabbitMQ, the subject on NATS, the topic on Kafka,
    /// and the queue on SQS.
    pub fn new(to: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            to: to.into(),
            payload: payload.into(),
            content_type: None,
            event_type: None,
            key: None,
            id: None,
            headers: Headers::new(),
            is_local: false,
            undeliverable: None,
        }
    }

    /// Creates a message whose payload is `event` as JSON, with the content type `application/json`.
    ///
    /// # Errors
    /// The event has no JSON form, for example because it has a map whose keys are not strings.
    pub fn json<E: Serialize + ?Sized>(to: impl Into<String>, event: &E) -> Result<Self, BoxError> {
        Ok(Self::new(to, serde_json::to_vec(event)?).content_type("application/json"))
    }

    /// Sets the key: messages with the same key arrive in the order in which they were staged. It is the record's key on
    /// Kafka. By default a message has no key and no order.
    #[must_use]
    pub fn key(mut self, key: impl KeyPart) -> Self {
        match Key::written(&key) {
            Ok(key) => self.key = Some(key),
            Err(error) => self.refuse(error.to_string()),
        }
        self
    }

    /// Sets the id, by which consumers recognize a copy. By default it is derived from the incoming message, so that
    /// whatever runs twice publishes under the same ids. Two messages with one id are copies to their consumers, and NATS drops
    /// the second one: if one handler, or one call of [`stage`](crate::StoreOutbox), stages both, that is an error.
    #[must_use]
    pub fn id(mut self, id: Uuid) -> Self {
        self.id = Some(id);
        self
    }

    /// Appends a header; a header with the same name is not replaced.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Sets the event type, by which a consumer selects the handler (AMQP `type`, a header elsewhere).
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Sets the media type of the payload (AMQP `content-type`, a header of that name elsewhere).
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Where it is published to: the routing key, the subject or the topic. The name of the handler if it is
    /// [local](Self::is_local).
    pub fn to(&self) -> &str {
        &self.to
    }

    /// Whether it is a [local message](crate::Outbox::local), which no relay publishes.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Returns the payload as a JSON value of this type, for a test.
    ///
    /// # Errors
    /// It is not JSON, or not of this type.
    pub fn decode<M: serde::de::DeserializeOwned>(&self) -> Result<M, BoxError> {
        Ok(serde_json::from_slice(&self.payload)?)
    }

    /// The key that was set with [`key`](Self::key).
    pub fn ordering_key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The headers. With the feature `opentelemetry`, the context of the trace in which the message is staged (`traceparent`,
    /// `tracestate`) is added to them then, unless one of these headers is there. That needs a span that a layer of
    /// `tracing-opentelemetry` gets, and a global propagator, which the program sets: by default there is none.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Keeps the first reason why the message cannot be staged.
    pub(crate) fn refuse(&mut self, why: String) {
        self.undeliverable.get_or_insert(why);
    }

    /// Checks what no broker can carry. The text names the part and its limit, and no value but the destination.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(why) = &self.undeliverable {
            return Err(why.clone());
        }
        let short = [
            ("destination", Some(self.to.as_str())),
            ("event type", self.event_type.as_deref()),
            ("content type", self.content_type.as_deref()),
        ];
        for (what, value) in short {
            plain(what, value.unwrap_or_default())?;
        }
        for (name, _) in self.headers.iter() {
            if name.is_empty() {
                return Err("a header has no name".to_owned());
            }
            plain("name of a header", name)?;
        }
        Ok(())
    }

    /// Returns the bytes of its payload and its headers.
    pub(crate) fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.payload.len() + headers
    }

    /// Checks the size, if it is known how much the broker takes.
    pub(crate) fn check_size(&self, limit: Option<usize>) -> Result<(), String> {
        match (self.size(), limit) {
            (size, Some(limit)) if size > limit => {
                Err(format!("it has {size} bytes with its headers, and the broker of the relay takes {limit}"))
            }
            _ => Ok(()),
        }
    }
}

/// The ids that were set for the messages of one run.
#[derive(Default)]
pub(crate) struct Ids(HashSet<Uuid>);

impl Ids {
    /// Checks that no message before this one has its id. A local message has none at a broker.
    pub(crate) fn check(&mut self, message: &Outgoing) -> Result<(), String> {
        match message.id.filter(|_| !message.is_local) {
            Some(id) if !self.0.insert(id) => Err(format!(
                "another message beside it has the id {id}, so that consumers and NATS would take one for a copy of the \
                 other: give each message an id of its own, or none"
            )),
            _ => Ok(()),
        }
    }
}

/// Checks that a text is short and has no control characters.
fn plain(what: &str, value: &str) -> Result<(), String> {
    if value.len() > SHORT {
        return Err(format!("the {what} has {} bytes, and at most {SHORT} are possible", value.len()));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("the {what} has a control character, which no broker carries"));
    }
    Ok(())
}

/// Shows the size of the payload and of the headers' values, never their content.
impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("to", &self.to)
            .field("payload", &format_args!("{} bytes", self.payload.len()))
            .field("content_type", &self.content_type)
            .field("event_type", &self.event_type)
            .field("key", &self.key)
            .field("id", &self.id)
            .field("headers", &self.headers)
            .field("is_local", &self.is_local)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_broker_can_carry_is_named_with_its_limit() {
        let fit = || Outgoing::new("orders", "{}").key("k").event_type("paid").header("tenant", vec![0xff, 0]);
        fit().check().unwrap();
        for (undeliverable, says) in [
            (fit().key("x".repeat(300)), "the key has 300 bytes"),
            (fit().key(""), "the key is empty"),
            (fit().header("", "1"), "a header has no name"),
            (fit().header("a\nb", "1"), "the name of a header has a control character"),
            (fit().event_type("x".repeat(256)), "the event type has 256 bytes, and at most 255"),
            (fit().content_type("text\0"), "the content type has a control character"),
            (Outgoing::new("x".repeat(256), ""), "the destination has 256 bytes"),
        ] {
            let why = undeliverable.check().unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn two_messages_of_one_run_have_two_ids() {
        let (mut ids, message) = (Ids::default(), |id| Outgoing { id, ..Outgoing::new("orders", "") });
        let local = Outgoing { is_local: true, ..message(Some(Uuid::nil())) };
        for fit in [message(None), message(None), local.clone(), message(Some(Uuid::nil())), local] {
            ids.check(&fit).unwrap();
        }
        let why = ids.check(&message(Some(Uuid::nil())).event_type("other")).unwrap_err();
        assert!(why.contains(&Uuid::nil().to_string()) && why.contains("of its own"), "{why}");
    }

    #[test]
    fn no_content_is_shown() {
        let shown = format!("{:?}", Outgoing::new("orders", "secret").header("token", "secret"));
        assert!(!shown.contains("secret") && shown.contains("6 bytes"), "{shown}");
    }
}
