//! Deliveries that are CloudEvents.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{Key, KeyError};

mod binary;
mod percent;
mod read;
mod structured;
#[cfg(test)]
mod tests;

pub(crate) use read::read;

/// The attributes that each event has.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

/// What a delivery says of itself as a CloudEvent (version 1.0 of the specification).
///
/// A worker with [`cloud_events`](crate::Worker::cloud_events) reads it. As a handler's parameter it is a copy; a delivery
/// that is no CloudEvent is a failure for good then.
#[derive(Clone)]
pub struct CloudEvent(Arc<Event>);

struct Event {
    id: String,
    source: String,
    kind: String,
    /// All others, in order.
    others: Vec<(String, String)>,
    data: Data,
}

/// Where the data of an event is.
enum Data {
    /// It is the payload.
    Payload,
    /// It was in the payload, with the attributes.
    Inside(Bytes),
    /// There is none.
    None,
}

impl CloudEvent {
    /// The id, which together with the [`source`](Self::source) tells the event from all others.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The context in which it happened.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The type of the event.
    pub fn event_type(&self) -> &str {
        &self.0.kind
    }

    /// Any other attribute, such as `subject`, `time` (as text) or one of an extension. Its name is in lower case. What is
    /// no text in JSON is as it is written there.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.0.others.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// All other attributes, in the order in which they came.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.others.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The key of `key = cloud_event_id`: source and id, as a composite key; a hash of both where that is longer than a key
    /// can be.
    ///
    /// # Errors
    /// None in practice: neither is empty.
    pub fn key(&self) -> Result<Key, KeyError> {
        match Key::composite(&[&self.0.source, &self.0.id]) {
            Err(KeyError::TooLong { .. }) => {
                let mut hash = Sha256::new();
                hash.update((self.0.source.len() as u64).to_be_bytes());
                hash.update(&self.0.source);
                hash.update(&self.0.id);
                // A composite key begins with the length of its first part, which is never 0.
                Key::of(&[&[0][..], &hash.finalize()].concat())
            }
            key => key,
        }
    }

    /// Of these attributes, each of which is there once.
    fn new(mut attributes: Vec<(String, String)>, data: Data) -> Result<Self, String> {
        let mut required = |name: &str| {
            let at = attributes.iter().position(|(other, _)| other == name);
            let (_, value) = attributes.remove(at.ok_or_else(|| format!("it has no `{name}`"))?);
            if value.is_empty() { Err(format!("its `{name}` is empty")) } else { Ok(value) }
        };
        let version = required(REQUIRED[0])?;
        if version != "1.0" {
            return Err(format!("its `specversion` is {version:?}, and 1.0 is known"));
        }
        let (id, source, kind) = (required(REQUIRED[1])?, required(REQUIRED[2])?, required(REQUIRED[3])?);
        Ok(Self(Arc::new(Event { id, source, kind, others: attributes, data })))
    }

    /// What is decoded where it is not the payload; `None` where there is nothing.
    pub(crate) fn data<'a>(&'a self, payload: &'a Bytes) -> Option<&'a Bytes> {
        match &self.0.data {
            Data::Payload => Some(payload),
            Data::Inside(data) => Some(data),
            Data::None => None,
        }
    }
}

/// Shows what tells it from others, and no other attribute.
impl fmt::Debug for CloudEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { id, source, kind, .. } = &*self.0;
        f.debug_struct("CloudEvent").field("id", id).field("source", source).field("type", kind).finish_non_exhaustive()
    }
}
