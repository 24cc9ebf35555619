//! One arrival of a message.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::Headers;
use crate::worker::Refused;

/// One arrival of a message: its payload, its headers and what the broker says about it.
///
/// The same message can have many deliveries; telling them apart from new messages is what idem is for.
/// As a handler's parameter, `Delivery` is a copy of the facts (the payload is shared, not copied).
#[derive(Clone)]
pub struct Delivery {
    pub(crate) source: Arc<str>,
    pub(crate) payload: Bytes,
    pub(crate) headers: Headers,
    pub(crate) message_id: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) position: Option<String>,
    pub(crate) redelivered: bool,
    pub(crate) delivery_count: Option<u32>,
    pub(crate) attempt: u32,
    /// How often the database has refused what idem writes for it, here.
    pub(crate) refused: Refused,
    pub(crate) tombstone: bool,
    pub(crate) published_at: Option<SystemTime>,
    pub(crate) lane: Option<u64>,
    pub(crate) partition_key: Option<Bytes>,
    pub(crate) volatile: &'static [&'static str],
    pub(crate) unrepresentable: Option<Arc<str>>,
}

impl Delivery {
    /// A first delivery from `source` (a queue, stream or topic) without headers.
    pub fn new(source: impl Into<Arc<str>>, payload: impl Into<Bytes>) -> Self {
        Self {
            source: source.into(),
            payload: payload.into(),
            headers: Headers::new(),
            message_id: None,
            event_type: None,
            position: None,
            redelivered: false,
            delivery_count: None,
            attempt: 1,
            refused: Refused::default(),
            tombstone: false,
            published_at: None,
            lane: None,
            partition_key: None,
            volatile: &[],
            unrepresentable: None,
        }
    }

    /// With these headers.
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// With the broker's own message id (AMQP `message-id`, `Nats-Msg-Id`).
    pub fn with_message_id(mut self, id: Option<String>) -> Self {
        self.message_id = id;
        self
    }

    /// With the type of the event, by which a worker chooses among its handlers (AMQP `type`).
    pub fn with_event_type(mut self, event_type: Option<String>) -> Self {
        self.event_type = event_type;
        self
    }

    /// With the place where the broker keeps it (topic/partition/offset, stream/sequence).
    pub fn with_position(mut self, position: Option<String>) -> Self {
        self.position = position;
        self
    }

    /// Marked by the broker as delivered before. Such a delivery is stored before it runs, because a process may have
    /// died on it.
    pub fn with_redelivered(mut self, redelivered: bool) -> Self {
        self.redelivered = redelivered;
        self
    }

    /// How often the broker counts that it was delivered before, where it counts. Some brokers drop a message that they
    /// have delivered too often, so a high count is stored before all else.
    pub fn with_delivery_count(mut self, count: Option<u32>) -> Self {
        self.delivery_count = count;
        self
    }

    /// Without a payload at all, which is not the same as an empty one: on a compacted topic it deletes its key.
    pub fn with_tombstone(mut self, tombstone: bool) -> Self {
        self.tombstone = tombstone;
        self
    }

    /// When it was published, by the broker's own clock. A producer's clock must not be passed on here: a message that is
    /// older than the claims that were pruned cannot be checked and is refused.
    pub fn with_published_at(mut self, published_at: Option<SystemTime>) -> Self {
        self.published_at = published_at;
        self
    }

    /// In the ordered lane of this number, behind the deliveries of the same lane that came before. `None`: in no order.
    pub fn with_lane(mut self, lane: Option<u64>) -> Self {
        self.lane = lane;
        self
    }

    /// With the key by which the broker chooses a partition (the key of a Kafka record).
    pub fn with_partition_key(mut self, key: Option<Bytes>) -> Self {
        self.partition_key = key;
        self
    }

    /// With the names of those headers that the broker changes from one delivery of the message to the next, such as a
    /// count of its deliveries. They are no part of the message: a delivery without a key is known by everything else.
    pub fn with_volatile_headers(mut self, names: &'static [&'static str]) -> Self {
        self.volatile = names;
        self
    }

    /// Unfit from the start: the broker delivered something that this type cannot hold, and `why` says what. It becomes a
    /// dead letter with the reason [`Unrepresentable`](crate::Reason::Unrepresentable) before anything of it runs, so that
    /// one message neither ends the subscription nor is lost. The other parts are what could be read.
    pub fn with_unrepresentable(mut self, why: Option<impl Into<Arc<str>>>) -> Self {
        self.unrepresentable = why.map(Into::into);
        self
    }

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

    /// The type of the event, if the producer set one.
    pub fn event_type(&self) -> Option<&str> {
        self.event_type.as_deref()
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

    /// When it was published, by the broker's own clock, if it has one.
    pub fn published_at(&self) -> Option<SystemTime> {
        self.published_at
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
}

/// Shows no payload, no header value and no partition key: all may hold personal data.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("source", &self.source)
            .field("payload", &format_args!("{} bytes", self.payload.len()))
            .field("headers", &self.headers)
            .field("message_id", &self.message_id)
            .field("event_type", &self.event_type)
            .field("position", &self.position)
            .field("redelivered", &self.redelivered)
            .field("delivery_count", &self.delivery_count)
            .field("attempt", &self.attempt)
            .field("tombstone", &self.tombstone)
            .field("published_at", &self.published_at)
            .field("lane", &self.lane)
            .field("unrepresentable", &self.unrepresentable)
            .finish()
    }
}
