//! One delivery of a message.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use bytes::Bytes;

use crate::store::envelope::{micros, time};
use crate::{Headers, Properties};

pub(crate) use rare::KeptCall;

use rare::Rare;

mod facts;
mod rare;

/// One delivery of a message: its payload, its headers and the broker's metadata.
///
/// The same message can be delivered many times; idem distinguishes such redeliveries from new messages. As a handler's
/// parameter, `Delivery` is a copy (the payload is shared, not copied).
///
/// ```
/// # use idem_core::{Codec, DecodeError, Delivery, Json};
/// # #[derive(serde::Deserialize)] struct Order { order_id: i64 }
/// // For a test of a codec, a key or a fingerprint; a handler's comes from the broker.
/// let delivery = Delivery::new("orders", r#"{"order_id": 7}"#)
///     .with_message_id(Some("e-1".to_owned()))
///     .with_headers([("tenant", "acme")].into_iter().collect());
/// let order: Order = Json.decode(&delivery)?;
/// assert_eq!((order.order_id, delivery.message_id(), delivery.attempt()), (7, Some("e-1"), 1));
/// assert_eq!((delivery.headers().get_str("tenant"), delivery.redelivered()), (Some("acme"), false));
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Clone)]
pub struct Delivery {
    pub(crate) source: Arc<str>,
    pub(crate) payload: Bytes,
    pub(crate) headers: Headers,
    pub(crate) message_id: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) subject: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) position: Option<String>,
    pub(crate) redelivered: bool,
    pub(crate) delivery_count: Option<u32>,
    pub(crate) attempt: u32,
    pub(crate) tombstone: bool,
    pub(crate) published_at: Option<SystemTime>,
    pub(crate) produced_at: Option<SystemTime>,
    pub(crate) ordering_key: Option<u64>,
    pub(crate) partition_key: Option<Bytes>,
    pub(crate) properties: Properties,
    pub(crate) volatile: &'static [&'static str],
    rare: Option<Box<Rare>>,
}

impl Delivery {
    /// Creates a first delivery from `source` (a queue, stream or topic) without headers.
    pub fn new(source: impl Into<Arc<str>>, payload: impl Into<Bytes>) -> Self {
        Self {
            source: source.into(),
            payload: payload.into(),
            headers: Headers::new(),
            message_id: None,
            event_type: None,
            subject: None,
            content_type: None,
            position: None,
            redelivered: false,
            delivery_count: None,
            attempt: 1,
            tombstone: false,
            published_at: None,
            produced_at: None,
            ordering_key: None,
            partition_key: None,
            properties: Properties::default(),
            volatile: &[],
            rare: None,
        }
    }

    /// Sets the headers.
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the broker's message id (AMQP `message-id`, `Nats-Msg-Id`).
    pub fn with_message_id(mut self, id: Option<String>) -> Self {
        self.message_id = id;
        self
    }

    /// Sets the event type, by which a worker selects the handler (AMQP `type`).
    pub fn with_event_type(mut self, event_type: Option<String>) -> Self {
        self.event_type = event_type;
        self
    }

    /// Sets the subject that the message was published to (NATS subject, AMQP routing key).
    pub fn with_subject(mut self, subject: Option<String>) -> Self {
        self.subject = subject;
        self
    }

    /// Sets the media type of the payload (AMQP `content-type`, a header of that name elsewhere).
    pub fn with_content_type(mut self, content_type: Option<String>) -> Self {
        self.content_type = content_type;
        self
    }

    /// Sets the correlation id of the producer (AMQP `correlation-id`).
    pub fn with_correlation_id(mut self, id: Option<String>) -> Self {
        self.set_rare(|rare| &mut rare.correlation_id, id);
        self
    }

    /// Sets the address to which the producer expects a reply (AMQP `reply-to`).
    pub fn with_reply_to(mut self, reply_to: Option<String>) -> Self {
        self.set_rare(|rare| &mut rare.reply_to, reply_to);
        self
    }

    /// Sets the properties that are specific to this broker.
    pub fn with_properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }

    /// Sets the position of the message at the broker (topic/partition/offset, stream/sequence). No other message from
    /// the same [source](Self::source) may ever have it, even after the stream was deleted and created again: add the
    /// time at which the broker stored the message. A handler whose key is the position would treat the other message
    /// as a copy. If the other one has the same key and content, its external call would be made under the
    /// [key](crate::OutboundKey) of the first one, and have no effect.
    pub fn with_position(mut self, position: Option<String>) -> Self {
        self.position = position;
        self
    }

    /// Sets whether the broker has marked it as a redelivery. A redelivery is stored before it runs, because a process
    /// may have died while it ran.
    pub fn with_redelivered(mut self, redelivered: bool) -> Self {
        self.redelivered = redelivered;
        self
    }

    /// Sets how often the broker has delivered it before, if the broker counts. Some brokers drop a message after too
    /// many deliveries, so one with a high count is stored first.
    pub fn with_delivery_count(mut self, count: Option<u32>) -> Self {
        self.delivery_count = count;
        self
    }

    /// Sets whether it has no payload at all, unlike one with an empty payload. On a compacted topic, such a message
    /// deletes its key.
    pub fn with_tombstone(mut self, tombstone: bool) -> Self {
        self.tombstone = tombstone;
        self
    }

    /// Sets the time of publication by the broker's clock. Do not pass a producer's time here: a message that is older
    /// than the pruned claims cannot be checked and becomes a dead letter. The time is truncated to microseconds, as in
    /// an inbox row.
    pub fn with_published_at(mut self, published_at: Option<SystemTime>) -> Self {
        self.published_at = published_at.and_then(micros).and_then(time);
        self
    }

    /// Sets the creation time by the producer's clock (AMQP `timestamp`, the `CreateTime` of a Kafka record). It is
    /// informational only. It is truncated to microseconds.
    pub fn with_produced_at(mut self, produced_at: Option<SystemTime>) -> Self {
        self.produced_at = produced_at.and_then(micros).and_then(time);
        self
    }

    /// Sets the ordering key: the delivery runs after all earlier deliveries with the same key. `None`: it is not
    /// ordered.
    pub fn with_ordering_key(mut self, ordering_key: Option<u64>) -> Self {
        self.ordering_key = ordering_key;
        self
    }

    /// Sets the key by which the broker chooses a partition (the key of a Kafka record).
    pub fn with_partition_key(mut self, key: Option<Bytes>) -> Self {
        self.partition_key = key;
        self
    }

    /// Sets the names of the headers that the broker changes from one delivery of the message to the next, such as a
    /// delivery count. They are not part of the message: a delivery without a key is identified by everything else.
    pub fn with_volatile_headers(mut self, names: &'static [&'static str]) -> Self {
        self.volatile = names;
        self
    }

    /// Marks the delivery as unrepresentable: the broker delivered something that this type cannot hold, described by
    /// `why`. It becomes a dead letter with reason [`Unrepresentable`](crate::Reason::Unrepresentable) before any of it
    /// runs, so one such message neither ends the subscription nor is lost. The other fields hold the parts that could
    /// be read.
    pub fn with_unrepresentable(mut self, why: Option<impl Into<Arc<str>>>) -> Self {
        self.set_rare(|rare| &mut rare.unrepresentable, why.map(Into::into));
        self
    }

    /// Returns the parts that few deliveries have.
    pub(crate) fn rare(&self) -> &Rare {
        static NONE: LazyLock<Rare> = LazyLock::new(Rare::default);
        self.rare.as_deref().unwrap_or_else(|| &NONE)
    }

    /// Returns the rare parts to be changed, and allocates them if there are none.
    pub(crate) fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Sets one of the rare parts. `None` allocates nothing.
    pub(crate) fn set_rare<T>(&mut self, part: impl FnOnce(&mut Rare) -> &mut Option<T>, value: Option<T>) {
        if value.is_some() || self.rare.is_some() {
            *part(self.rare_mut()) = value;
        }
    }
}

/// Shows no payload, no value of a header or property and no partition key: all may contain personal data.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("source", &self.source)
            .field("payload", &format_args!("{} bytes", self.payload.len()))
            .field("headers", &self.headers)
            .field("message_id", &self.message_id)
            .field("event_type", &self.event_type)
            .field("subject", &self.subject)
            .field("content_type", &self.content_type)
            .field("correlation_id", &self.rare().correlation_id)
            .field("reply_to", &self.rare().reply_to)
            .field("properties", &self.properties)
            .field("position", &self.position)
            .field("redelivered", &self.redelivered)
            .field("delivery_count", &self.delivery_count)
            .field("attempt", &self.attempt)
            .field("tombstone", &self.tombstone)
            .field("published_at", &self.published_at)
            .field("produced_at", &self.produced_at)
            .field("ordering_key", &self.ordering_key)
            .field("cloud_event", &self.rare().cloud_event)
            .field("unrepresentable", &self.rare().unrepresentable)
            .finish()
    }
}
