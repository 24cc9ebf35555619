//! One arrival of a message.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::{CloudEvent, Headers, Properties};

pub(crate) use preparation::Preparation;
pub(crate) use refused::Refused;

mod facts;
mod preparation;
mod refused;

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
    pub(crate) subject: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) reply_to: Option<String>,
    pub(crate) position: Option<String>,
    pub(crate) redelivered: bool,
    pub(crate) delivery_count: Option<u32>,
    pub(crate) attempt: u32,
    /// How often the database has refused what idem writes for it, here.
    pub(crate) refused: Refused,
    /// What came of the codec's preparation for it, here.
    pub(crate) preparation: Preparation,
    pub(crate) tombstone: bool,
    pub(crate) published_at: Option<SystemTime>,
    pub(crate) produced_at: Option<SystemTime>,
    pub(crate) lane: Option<u64>,
    pub(crate) partition_key: Option<Bytes>,
    pub(crate) properties: Properties,
    /// What it says of itself as a CloudEvent, where that is asked for.
    pub(crate) cloud_event: Option<Result<CloudEvent, Arc<str>>>,
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
            subject: None,
            content_type: None,
            correlation_id: None,
            reply_to: None,
            position: None,
            redelivered: false,
            delivery_count: None,
            attempt: 1,
            refused: Refused::default(),
            preparation: Preparation::None,
            tombstone: false,
            published_at: None,
            produced_at: None,
            lane: None,
            partition_key: None,
            properties: Properties::new(),
            cloud_event: None,
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

    /// With the subject that it was published to (NATS subject, AMQP routing key).
    pub fn with_subject(mut self, subject: Option<String>) -> Self {
        self.subject = subject;
        self
    }

    /// With the media type of the payload (AMQP `content-type`, a header of that name elsewhere).
    pub fn with_content_type(mut self, content_type: Option<String>) -> Self {
        self.content_type = content_type;
        self
    }

    /// With the id by which its producer knows what it belongs to (AMQP `correlation-id`).
    pub fn with_correlation_id(mut self, id: Option<String>) -> Self {
        self.correlation_id = id;
        self
    }

    /// With the place where its producer expects an answer (AMQP `reply-to`).
    pub fn with_reply_to(mut self, reply_to: Option<String>) -> Self {
        self.reply_to = reply_to;
        self
    }

    /// With what only this broker says of its messages.
    pub fn with_properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
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
    /// older than the claims that were pruned cannot be checked and is refused. It is kept to the microsecond, as an inbox
    /// row keeps it.
    pub fn with_published_at(mut self, published_at: Option<SystemTime>) -> Self {
        self.published_at = published_at.and_then(whole_micros);
        self
    }

    /// When its producer says that it was made, by the producer's clock (AMQP `timestamp`, the `CreateTime` of a Kafka
    /// record). Nothing is decided by it. It is kept to the microsecond.
    pub fn with_produced_at(mut self, produced_at: Option<SystemTime>) -> Self {
        self.produced_at = produced_at.and_then(whole_micros);
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
}

/// Shows no payload, no value of a header or property and no partition key: all may hold personal data.
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
            .field("correlation_id", &self.correlation_id)
            .field("reply_to", &self.reply_to)
            .field("properties", &self.properties)
            .field("position", &self.position)
            .field("redelivered", &self.redelivered)
            .field("delivery_count", &self.delivery_count)
            .field("attempt", &self.attempt)
            .field("tombstone", &self.tombstone)
            .field("published_at", &self.published_at)
            .field("produced_at", &self.produced_at)
            .field("lane", &self.lane)
            .field("cloud_event", &self.cloud_event)
            .field("unrepresentable", &self.unrepresentable)
            .finish()
    }
}

/// This time to the microsecond; `None` before 1970, which no row can hold.
fn whole_micros(time: SystemTime) -> Option<SystemTime> {
    let micros = u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_micros(micros))
}
