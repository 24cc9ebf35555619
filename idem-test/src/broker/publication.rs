//! What a producer publishes.

use std::time::SystemTime;

use bytes::Bytes;
use idem_core::{Headers, Properties};
use serde::Serialize;

/// A message as its producer publishes it: a payload, headers and properties.
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
    pub(crate) lane: Option<u64>,
    pub(crate) partition_key: Option<Bytes>,
    pub(crate) unrepresentable: Option<String>,
}

impl Publication {
    /// A payload alone.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), ..Self::default() }
    }

    /// No payload at all, which is not the same as an empty one.
    pub fn tombstone() -> Self {
        Self { tombstone: true, ..Self::default() }
    }

    /// With something that a delivery cannot hold, which this says.
    pub fn unrepresentable(mut self, why: impl Into<String>) -> Self {
        self.unrepresentable = Some(why.into());
        self
    }

    /// A payload in JSON.
    ///
    /// # Errors
    /// The message cannot be written as JSON.
    pub fn json(message: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(message).map(Self::new)
    }

    /// With one header more.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// With these headers instead of those so far.
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// With the broker's message id.
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = Some(id.into());
        self
    }

    /// With the type of the event.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Published to this subject.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// With the media type of the payload.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// With the id of what it belongs to.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// With the place where an answer is expected.
    pub fn reply_to(mut self, reply_to: impl Into<String>) -> Self {
        self.reply_to = Some(reply_to.into());
        self
    }

    /// Made then, by the producer's clock.
    pub fn produced_at(mut self, time: SystemTime) -> Self {
        self.produced_at = Some(time);
        self
    }

    /// With one more property that only some brokers have.
    pub fn property(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.properties.insert(name, value);
        self
    }

    /// Published then, by the broker's clock. By default the broker has no clock.
    pub fn published_at(mut self, time: SystemTime) -> Self {
        self.published_at = Some(time);
        self
    }

    /// In this lane, where the worker asks for an order by partition or key; in the lane 0 by default.
    pub fn lane(mut self, lane: u64) -> Self {
        self.lane = Some(lane);
        self
    }

    /// With the key by which a broker chooses a partition.
    pub fn partition_key(mut self, key: impl Into<Bytes>) -> Self {
        self.partition_key = Some(key.into());
        self
    }

    /// The payload.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The headers so far.
    pub fn get_headers(&self) -> &Headers {
        &self.headers
    }

    /// The broker's message id, if there is one.
    pub fn get_message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The type of the event, if there is one.
    pub fn get_event_type(&self) -> Option<&str> {
        self.event_type.as_deref()
    }

    /// The media type of the payload, if there is one.
    pub fn get_content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The id of what it belongs to, if there is one.
    pub fn get_correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    /// The place where an answer is expected, if there is one.
    pub fn get_reply_to(&self) -> Option<&str> {
        self.reply_to.as_deref()
    }

    /// When it was made, by the producer's clock, if it says so.
    pub fn get_produced_at(&self) -> Option<SystemTime> {
        self.produced_at
    }

    /// The key by which a broker chooses a partition, if there is one.
    pub fn get_partition_key(&self) -> Option<&Bytes> {
        self.partition_key.as_ref()
    }

    /// Whether it has no payload at all.
    pub fn is_tombstone(&self) -> bool {
        self.tombstone
    }
}

impl<P: Into<Bytes>> From<P> for Publication {
    fn from(payload: P) -> Self {
        Self::new(payload)
    }
}
