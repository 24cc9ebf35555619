//! A message of the outbox, as a relay reads it.

use std::time::SystemTime;

use bytes::Bytes;
use uuid::Uuid;

use crate::{Headers, Key};

use super::Outgoing;

/// A committed message of the outbox, which a relay passes to its [`Sink`](super::Sink).
///
/// ```
/// # use idem_core::{Outgoing, StagedMessage};
/// # use uuid::Uuid;
/// // For a test of a sink; a relay reads it from the database.
/// let message = StagedMessage::new(Uuid::from_u128(7), Outgoing::new("orders.paid", "{}").header("tenant", "acme"));
/// assert_eq!((message.to(), message.id(), message.attempt()), ("orders.paid", Uuid::from_u128(7), 1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedMessage {
    id: Uuid,
    message: Outgoing,
    staged_at: SystemTime,
    attempt: u32,
}

impl StagedMessage {
    /// Creates a message with this id, which is published for the first time and was staged now.
    pub fn new(id: Uuid, message: Outgoing) -> Self {
        Self { id, message, staged_at: SystemTime::now(), attempt: 1 }
    }

    /// Sets when it was staged, by the database's clock.
    #[must_use]
    pub fn with_staged_at(self, staged_at: SystemTime) -> Self {
        Self { staged_at, ..self }
    }

    /// Sets the number of the attempt, starting at 1.
    #[must_use]
    pub fn with_attempt(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }

    /// The id, which is the same each time the message is published: AMQP `message-id`, `Nats-Msg-Id`, the header
    /// `message-id` on Kafka.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Where it is published to: the routing key, the subject or the topic.
    pub fn to(&self) -> &str {
        &self.message.to
    }

    /// The payload.
    pub fn payload(&self) -> &Bytes {
        &self.message.payload
    }

    /// The key, by which messages are ordered. On Kafka it is the key of the record.
    pub fn key(&self) -> Option<&Key> {
        self.message.key.as_ref()
    }

    /// The media type of the payload.
    pub fn content_type(&self) -> Option<&str> {
        self.message.content_type.as_deref()
    }

    /// The event type.
    pub fn event_type(&self) -> Option<&str> {
        self.message.event_type.as_deref()
    }

    /// The headers. With the feature `opentelemetry`, they include the context of the trace in which the message was staged
    /// (`traceparent`), if it was in a span that a layer of `tracing-opentelemetry` got, and the program has set a global
    /// propagator. By default there is none.
    pub fn headers(&self) -> &Headers {
        &self.message.headers
    }

    /// When it was staged, by the database's clock.
    pub fn staged_at(&self) -> SystemTime {
        self.staged_at
    }

    /// How often it has been published, this time included, as far as failures were charged to it: starting at 1. A
    /// message that is published again after a crash has the same number.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The message without its id.
    pub fn message(&self) -> &Outgoing {
        &self.message
    }
}
