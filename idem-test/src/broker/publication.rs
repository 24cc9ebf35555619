//! A message as a producer publishes it.

use std::time::SystemTime;

use bytes::Bytes;
use idem_core::{Headers, Properties};
use serde::Serialize;

/// A message as a producer publishes it: payload, headers and properties.
///
/// ```
/// # use idem_test::{Broker, Publication};
/// # fn main() -> Result<(), serde_json::Error> {
/// let paid = Publication::json(&serde_json::json!({"order_id": 7}))?
///     .message_id("e-1")
///     .event_type("order.paid")
///     .header("tenant", "acme");
/// assert_eq!((&paid.payload()[..], paid.get_event_type()), (&br#"{"order_id":7}"#[..], Some("order.paid")));
/// Broker::new().publish("orders", paid);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Publication {
    pub(crate) payload: Bytes,
    pub(crate) headers: Headers,
    pub(crate) message_id: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) reply_to: Option<String>,
    pub(crate) produced_at: Option<SystemTime>,
    pub(crate) properties: Properties,
    pub(crate) tombstone: bool,
    pub(crate) published_at: Option<SystemTime>,
    pub(crate) position: Option<String>,
    pub(crate) ordering_key: Option<u64>,
    pub(crate) partition_key: Option<Bytes>,
    pub(crate) unrepresentable: Option<String>,
}

impl Publication {
    /// Creates a message with this payload and nothing else.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), ..Self::default() }
    }

    /// Creates a message without a payload, which differs from an empty payload.
    pub fn tombstone() -> Self {
        Self { tombstone: true, ..Self::default() }
    }

    /// Marks the message as holding something that a delivery cannot represent; `why` says what.
    pub fn unrepresentable(mut self, why: impl Into<String>) -> Self {
        self.unrepresentable = Some(why.into());
        self
    }

    /// Creates a message with a JSON payload.
    ///
    /// # Errors
    /// Fails if the message cannot be serialized as JSON.
    pub fn json(message: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(message).map(Self::new)
    }

    /// Adds a header. A borrowed value must be `'static`; otherwise pass `value.to_owned()`.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Replaces all headers.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the broker's message id.
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = Some(id.into());
        self
    }

    /// Sets the event type.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Sets the subject to which the message is published.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the media type of the payload.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Sets the correlation id.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Sets the address for replies.
    pub fn reply_to(mut self, reply_to: impl Into<String>) -> Self {
        self.reply_to = Some(reply_to.into());
        self
    }

    /// Sets when the message was produced, by the producer's clock.
    pub fn produced_at(mut self, time: SystemTime) -> Self {
        self.produced_at = Some(time);
        self
    }

    /// Adds a property that only some brokers have.
    pub fn property(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.properties.insert(name, value);
        self
    }

    /// Sets when the message was published, by the broker's clock. By default the broker has no clock.
    pub fn published_at(mut self, time: SystemTime) -> Self {
        self.published_at = Some(time);
        self
    }

    /// Sets the position of the message at the broker. By default it has none. A message that is published twice at one
    /// position is one that a rewound stream delivers again: its [external calls](idem_core::OutboundKey) have the same key.
    pub fn position(mut self, position: impl Into<String>) -> Self {
        self.position = Some(position.into());
        self
    }

    /// Sets the ordering key for a worker that asks for an order by partition or key. The default is 0.
    pub fn ordering_key(mut self, ordering_key: u64) -> Self {
        self.ordering_key = Some(ordering_key);
        self
    }

    /// Sets the key by which a broker chooses a partition.
    pub fn partition_key(mut self, key: impl Into<Bytes>) -> Self {
        self.partition_key = Some(key.into());
        self
    }

    /// The payload.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The headers.
    pub fn get_headers(&self) -> &Headers {
        &self.headers
    }

    /// The broker's message id, if there is one.
    pub fn get_message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The event type, if there is one.
    pub fn get_event_type(&self) -> Option<&str> {
        self.event_type.as_deref()
    }

    /// The media type of the payload, if there is one.
    pub fn get_content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The correlation id, if there is one.
    pub fn get_correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    /// The address for replies, if there is one.
    pub fn get_reply_to(&self) -> Option<&str> {
        self.reply_to.as_deref()
    }

    /// When the message was produced, by the producer's clock, if known.
    pub fn get_produced_at(&self) -> Option<SystemTime> {
        self.produced_at
    }

    /// The key by which a broker chooses a partition, if there is one.
    pub fn get_partition_key(&self) -> Option<&Bytes> {
        self.partition_key.as_ref()
    }

    /// Whether the message has no payload at all.
    pub fn is_tombstone(&self) -> bool {
        self.tombstone
    }
}

impl<P: Into<Bytes>> From<P> for Publication {
    fn from(payload: P) -> Self {
        Self::new(payload)
    }
}
