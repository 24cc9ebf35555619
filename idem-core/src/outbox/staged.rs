//! A message of the outbox, as a relay reads it, and as a CloudEvent.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use uuid::Uuid;

use crate::{Headers, Key};

use super::{Outgoing, SinkError};

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
    /// `message-id` on Kafka and SQS.
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

    /// How often it has been published, this time included, as far as failures counted as attempts: starting at 1. A
    /// message that is published again after a crash has the same number.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The message without its id.
    pub fn message(&self) -> &Outgoing {
        &self.message
    }

    /// Returns the attributes of this message as a CloudEvent in binary mode (version 1.0 of the specification), for a
    /// [`Sink`](super::Sink) that writes them under its broker's names: `specversion`, `id`, `source`, `type`, `time`
    /// (when the message was staged), and `partitionkey` if the key is text. The content type is not among them, because
    /// binary mode has it in the broker's own place.
    ///
    /// The type is the event type, or the destination of a message without one.
    ///
    /// # Errors
    /// [`SinkError::Message`] if the source or the type would be empty, which the specification forbids. A sink refuses an
    /// empty source when it [opens](super::Sink::open), because it concerns all messages.
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use idem_core::{Outgoing, StagedMessage};
    /// # use uuid::Uuid;
    /// let message = StagedMessage::new(Uuid::from_u128(7), Outgoing::new("orders.paid", "{}"))
    ///     .with_staged_at(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
    /// assert_eq!(message.cloud_event("/billing")?, [
    ///     ("specversion", "1.0".to_owned()),
    ///     ("id", "00000000-0000-0000-0000-000000000007".to_owned()),
    ///     ("source", "/billing".to_owned()),
    ///     ("type", "orders.paid".to_owned()),
    ///     ("time", "2023-11-14T22:13:20.123Z".to_owned()),
    /// ]);
    /// # Ok::<_, idem_core::SinkError>(())
    /// ```
    pub fn cloud_event(&self, source: &str) -> Result<Vec<(&'static str, String)>, SinkError> {
        let event_type = self.event_type().filter(|name| !name.is_empty()).unwrap_or(self.to());
        if source.is_empty() {
            return Err(SinkError::message(
                "a CloudEvent needs a source: give .cloud_events(..) one that is not empty",
            ));
        }
        if event_type.is_empty() {
            return Err(SinkError::message(
                "a CloudEvent needs a type: give the message an event type, since its destination is empty",
            ));
        }
        let mut attributes = vec![
            ("specversion", "1.0".to_owned()),
            ("id", self.id().to_string()),
            ("source", source.to_owned()),
            ("type", event_type.to_owned()),
            ("time", rfc3339(self.staged_at())),
        ];
        if let Some(key) = self.key().and_then(|key| std::str::from_utf8(key.as_bytes()).ok()) {
            attributes.push(("partitionkey", key.to_owned()));
        }
        Ok(attributes)
    }
}

/// Formats a time in UTC with milliseconds (RFC 3339), from 1970 to the year 9999: another one is the nearest of these.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_millis(time.clamp(UNIX_EPOCH, last)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_without_a_source_or_a_type_is_refused() {
        let message = |to: &str| StagedMessage::new(Uuid::nil(), Outgoing::new(to, "{}"));
        let typed = StagedMessage::new(Uuid::nil(), Outgoing::new("", "{}").event_type("paid"));
        assert!(message("orders").cloud_event("/shop").is_ok() && typed.cloud_event("/shop").is_ok());
        for (message, source, says) in [(message("orders"), "", "a source"), (message(""), "/shop", "a type")] {
            let Err(SinkError::Message(error)) = message.cloud_event(source) else { panic!("{says}") };
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_time_is_formatted_across_leap_years() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_735_689_600, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
