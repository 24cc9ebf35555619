//! What is known of a delivery.

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

    /// The broker's own message id, if the producer set one.
    pub fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The type of the event, if the producer set one: that of the CloudEvent where the worker reads it as one.
    pub fn event_type(&self) -> Option<&str> {
        self.cloud_event().map(CloudEvent::event_type).or(self.event_type.as_deref())
    }

    /// What it says of itself as a CloudEvent, if the worker reads [CloudEvents](crate::Worker::cloud_events) and it is one.
    pub fn cloud_event(&self) -> Option<&CloudEvent> {
        self.cloud_event.as_ref()?.as_ref().ok()
    }

    /// What the codec decodes: the payload, or the data of a CloudEvent that has it in there with its attributes.
    pub fn data(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        match self.cloud_event() {
            Some(event) => event.data(&self.payload).unwrap_or(&NONE),
            None => &self.payload,
        }
    }

    /// Whether there is nothing to decode, not even an empty payload: it is a tombstone, or a CloudEvent in JSON without data.
    pub(crate) fn has_no_data(&self) -> bool {
        self.tombstone || self.cloud_event().is_some_and(|event| event.data(&self.payload).is_none())
    }

    /// The subject that it was published to: the subject of NATS, the routing key of AMQP. Kafka has none.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// The media type of the payload, if the producer set one: AMQP `content-type`, the header `content-type` elsewhere.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The id by which the producer knows what it belongs to, if it set one (AMQP).
    pub fn correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    /// Where the producer expects an answer, if it said so (AMQP).
    pub fn reply_to(&self) -> Option<&str> {
        self.reply_to.as_deref()
    }

    /// What only some brokers say of a message.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The place where the broker keeps it, if the broker has such a place.
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    /// Whether the broker had delivered it before. `false` proves nothing: a producer that publishes again makes a new
    /// message.
    pub fn redelivered(&self) -> bool {
        self.redelivered
    }

    /// How often the broker counts that it was delivered before; `None` where it does not count, or not this delivery.
    pub fn delivery_count(&self) -> Option<u32> {
        self.delivery_count
    }

    /// Whether it has no payload at all, not even an empty one.
    pub fn is_tombstone(&self) -> bool {
        self.tombstone
    }

    /// When it was published, by the broker's own clock, if it has one: NATS, and Kafka topics with `LogAppendTime`.
    pub fn published_at(&self) -> Option<SystemTime> {
        self.published_at
    }

    /// When its producer says that it was made, by the producer's clock, if it says so: AMQP `timestamp`, Kafka topics with
    /// `CreateTime`. A producer can say anything.
    pub fn produced_at(&self) -> Option<SystemTime> {
        self.produced_at
    }

    /// The ordered lane that it is in, if the worker asked for an order.
    pub fn lane(&self) -> Option<u64> {
        self.lane
    }

    /// The key by which the broker chooses a partition, if it has one. A tombstone deletes it.
    pub fn partition_key(&self) -> Option<&[u8]> {
        self.partition_key.as_deref()
    }

    /// Whether the broker changes the header of this name from one delivery to the next.
    pub(crate) fn is_volatile(&self, name: &str) -> bool {
        self.volatile.contains(&name)
    }

    /// What of it cannot be represented, if anything.
    pub fn unrepresentable(&self) -> Option<&str> {
        self.unrepresentable.as_deref()
    }

    /// Which try this is, counted from 1. Runs that were cut off by a crash or a lost connection are not counted.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        let properties = self.properties.iter().map(|(name, value)| name.len() + value.len());
        let texts = [&self.subject, &self.content_type, &self.correlation_id, &self.reply_to];
        let texts = texts.into_iter().flatten().map(String::len);
        let key = self.partition_key.as_ref().map_or(0, Bytes::len);
        self.payload.len() + key + headers.chain(properties).chain(texts).sum::<usize>()
    }
}
