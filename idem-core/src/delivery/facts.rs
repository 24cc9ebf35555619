//! Accessors of a delivery.

use std::time::SystemTime;

use bytes::Bytes;

use crate::{CloudEvent, Delivery, Headers, Properties};

impl Delivery {
    /// The queue, stream or topic that it came from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The payload as the producer sent it.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The headers as the producer sent them.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The broker's message id, if the producer set one.
    pub fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The event type, if the producer set one: the type of the CloudEvent if the worker reads it as one.
    pub fn event_type(&self) -> Option<&str> {
        self.cloud_event().map(CloudEvent::event_type).or(self.event_type.as_deref())
    }

    /// Its CloudEvents attributes, if the worker reads [CloudEvents](crate::Worker::cloud_events) and it is one.
    pub fn cloud_event(&self) -> Option<&CloudEvent> {
        self.rare().cloud_event.as_ref()?.as_ref().ok()
    }

    /// The bytes that the codec decodes: the payload, or the data inside it if the payload is a CloudEvent with its
    /// attributes.
    pub fn data(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        match self.cloud_event() {
            Some(event) => event.data(&self.payload).unwrap_or(&NONE),
            None => &self.payload,
        }
    }

    /// Returns whether there is nothing to decode, not even an empty payload: a tombstone, or a JSON CloudEvent without
    /// data.
    pub(crate) fn has_no_data(&self) -> bool {
        self.tombstone || self.cloud_event().is_some_and(|event| event.data(&self.payload).is_none())
    }

    /// The subject that it was published to: the subject of NATS, the routing key of AMQP. Kafka and SQS have none.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// The media type of the payload, if the producer set one: AMQP `content-type`, a header of that name elsewhere.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The correlation id, if the producer set one (AMQP).
    pub fn correlation_id(&self) -> Option<&str> {
        self.rare().correlation_id.as_deref()
    }

    /// The address to which the producer expects a reply, if it set one (AMQP).
    pub fn reply_to(&self) -> Option<&str> {
        self.rare().reply_to.as_deref()
    }

    /// The broker-specific properties.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The message's position at the broker, if the broker has positions.
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    /// Whether the broker had delivered it before. `false` proves nothing: a producer that publishes again creates a
    /// new message.
    pub fn redelivered(&self) -> bool {
        self.redelivered
    }

    /// How often the broker has delivered it before; `None` if the broker does not count, or not for this delivery.
    pub fn delivery_count(&self) -> Option<u32> {
        self.delivery_count
    }

    /// Whether it has no payload at all, not even an empty one.
    pub fn is_tombstone(&self) -> bool {
        self.tombstone
    }

    /// When it was published, by the broker's clock, if the broker records it: NATS, SQS, and Kafka topics with
    /// `LogAppendTime`.
    pub fn published_at(&self) -> Option<SystemTime> {
        self.published_at
    }

    /// When it was created, by the producer's clock, if the producer set it: AMQP `timestamp`, Kafka topics with
    /// `CreateTime`. The value is not reliable.
    pub fn produced_at(&self) -> Option<SystemTime> {
        self.produced_at
    }

    /// The ordering key, if the worker uses an order.
    pub fn ordering_key(&self) -> Option<u64> {
        self.ordering_key
    }

    /// The key by which the broker chooses a partition, if it has one. A tombstone deletes it.
    pub fn partition_key(&self) -> Option<&[u8]> {
        self.partition_key.as_deref()
    }

    /// A description of the part that cannot be represented, if any.
    pub fn unrepresentable(&self) -> Option<&str> {
        self.rare().unrepresentable.as_deref()
    }

    /// The number of the current attempt, starting at 1. Runs that ended in a crash or a lost connection are not
    /// counted.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Its approximate memory usage.
    pub(crate) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        let properties = self.properties.iter().map(|(name, value)| name.len() + value.len());
        let texts = [self.subject(), self.content_type(), self.correlation_id(), self.reply_to()];
        let texts = texts.into_iter().flatten().map(str::len);
        let key = self.partition_key.as_ref().map_or(0, Bytes::len);
        self.payload.len() + key + headers.chain(properties).chain(texts).sum::<usize>()
    }
}
