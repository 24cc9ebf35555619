//! Dead letters of a key-value store.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::store::envelope::{self, micros, time};
use crate::{Delivery, Fingerprint, Key, Reason};

use super::Id;

/// A dead letter, with its whole message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Letter {
    /// Its identity.
    pub id: Id,
    /// The fingerprint of its message.
    pub fingerprint: Fingerprint,
    /// Why it is dead.
    pub reason: Reason,
    /// The error of the last attempt.
    pub error: String,
    /// How many attempts have failed, as far as the process knew that buried it.
    pub attempts: u32,
    /// When it died, by the clock of the worker.
    pub died_at: SystemTime,
    /// The message.
    pub delivery: Delivery,
}

/// Which dead letters are returned. By default all, and at most 100.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LetterFilter {
    /// Those of this consumer.
    pub consumer: Option<String>,
    /// Those of this handler.
    pub handler: Option<String>,
    /// At most so many.
    pub limit: usize,
}

impl Default for LetterFilter {
    fn default() -> Self {
        Self { consumer: None, handler: None, limit: 100 }
    }
}

impl LetterFilter {
    /// All, and at most 100.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those of this consumer.
    pub fn consumer(self, consumer: impl Into<String>) -> Self {
        Self { consumer: Some(consumer.into()), ..self }
    }

    /// Those of this handler.
    pub fn handler(self, handler: impl Into<String>) -> Self {
        Self { handler: Some(handler.into()), ..self }
    }

    /// At most so many.
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Returns whether a letter matches.
    pub fn matches(&self, letter: &Letter) -> bool {
        self.consumer.as_deref().is_none_or(|consumer| consumer == &*letter.id.consumer)
            && self.handler.as_deref().is_none_or(|handler| handler == letter.id.handler)
    }
}

/// How a dead letter ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// Its message may run again. Replay, then publish it; nothing is lost in between: the letter stays, and is listed, until the message
    /// that was published again is processed, or is a dead letter again. So a replay can be repeated. There is no inbox from which it could
    /// run by itself. Of a message that is `half applied`, the writes that were applied are applied again. The letter of a message without
    /// a key, or of a conflict, has a record [apart](Id::apart), and stays until it is discarded.
    Replay,
    /// Its message counts as processed, and copies of it are duplicates.
    Discard,
}

/// A letter as JSON, readable for operators.
#[derive(Serialize, Deserialize)]
struct Written {
    consumer: String,
    handler: String,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    apart: Option<String>,
    fingerprint: String,
    reason: Reason,
    error: String,
    attempts: u32,
    /// Microseconds since 1970.
    died_at: u64,
    envelope: Box<RawValue>,
    payload: String,
}

impl Letter {
    /// Returns a dead letter, for tests of a store.
    pub fn new(
        id: Id,
        fingerprint: Fingerprint,
        reason: Reason,
        error: impl Into<String>,
        attempts: u32,
        died_at: SystemTime,
        delivery: Delivery,
    ) -> Self {
        Self { id, fingerprint, reason, error: error.into(), attempts, died_at, delivery }
    }

    /// Encodes the letter. Key and fingerprints are hexadecimal, the payload is base64.
    pub fn encode(&self) -> Vec<u8> {
        let sealed = String::from_utf8(envelope::seal(&self.delivery)).ok();
        let Some(envelope) = sealed.and_then(|sealed| RawValue::from_string(sealed).ok()) else { return Vec::new() };
        let written = Written {
            consumer: self.id.consumer.to_string(),
            handler: self.id.handler.to_string(),
            key: hex::encode(self.id.key.as_bytes()),
            apart: self.id.apart.map(|print| hex::encode(print.as_bytes())),
            fingerprint: hex::encode(self.fingerprint.as_bytes()),
            reason: self.reason,
            error: self.error.clone(),
            attempts: self.attempts,
            died_at: micros(self.died_at).unwrap_or_default(),
            envelope,
            payload: BASE64_STANDARD.encode(self.delivery.payload()),
        };
        // Strings and numbers always serialize.
        serde_json::to_vec(&written).unwrap_or_default()
    }

    /// Decodes a letter; `None` if somebody has damaged it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let Written { consumer, handler, key, apart, fingerprint, reason, error, attempts, died_at, envelope, payload } =
            serde_json::from_slice(bytes).ok()?;
        let print = |text: String| hex::decode(text).ok().map(|bytes| Fingerprint::stored(&bytes));
        let apart = match apart {
            Some(text) => Some(print(text)?),
            None => None,
        };
        let key = Key::stored(&hex::decode(key).ok()?).ok()?;
        let id = Id { consumer: Arc::from(consumer), handler: handler.into(), key, apart };
        let payload = BASE64_STANDARD.decode(payload).ok()?;
        let delivery = envelope::open(envelope.get().as_bytes(), payload, attempts);
        let died_at = time(died_at).unwrap_or(UNIX_EPOCH);
        Some(Self { id, fingerprint: print(fingerprint)?, reason, error, attempts, died_at, delivery })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_read_back_with_its_whole_message() {
        let delivery = Delivery::new("orders", &b"\xff\0{}"[..]).with_message_id(Some("m-1".to_owned()));
        let id = Id {
            consumer: "billing".into(),
            handler: "paid".into(),
            key: Key::of(&b"e\0\xff"[..]).unwrap(),
            apart: Some(Fingerprint::of(b"{}")),
        };
        let letter = Letter {
            id: id.clone(),
            fingerprint: Fingerprint::of(b"[]").by("content"),
            reason: Reason::Exhausted,
            error: "no \"stock\"\n".to_owned(),
            attempts: 3,
            died_at: time(1_700_000_000_000_000).unwrap(),
            delivery,
        };
        let read = Letter::decode(&letter.encode()).unwrap();
        assert_eq!((read.id, read.fingerprint, read.reason), (id, letter.fingerprint, Reason::Exhausted));
        assert_eq!((read.error, read.attempts, read.died_at), (letter.error, 3, letter.died_at));
        assert_eq!(&read.delivery.payload()[..], b"\xff\0{}");
        assert_eq!((read.delivery.source(), read.delivery.message_id()), ("orders", Some("m-1")));
        assert!(Letter::decode(b"{}").is_none());
    }
}
