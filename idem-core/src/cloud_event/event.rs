//! The attributes of an event.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{Key, KeyError};

/// The attributes that every event has.
pub(super) const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

/// The CloudEvents attributes of a delivery (version 1.0 of the specification).
///
/// A worker with [`cloud_events`](crate::Worker::cloud_events) reads them. As a handler's parameter, `CloudEvent` is a
/// copy; a delivery that is not a CloudEvent then fails permanently.
///
/// ```
/// # use idem_core::{BoxError, CloudEvent};
/// # struct OrderPaid { order_id: i64 } struct PgConnection;
/// // A handler with `key = cloud_event_id` of a worker with `.cloud_events()`.
/// async fn order_paid(paid: OrderPaid, event: CloudEvent, tx: &mut PgConnection) -> Result<(), BoxError> {
///     let tenant = event.attribute("tenant");
///     tracing::info!(order = paid.order_id, id = event.id(), source = event.source(), tenant);
///     # let _ = tx;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct CloudEvent(Arc<Event>);

struct Event {
    id: String,
    source: String,
    kind: String,
    /// All other attributes.
    others: BTreeMap<String, String>,
    data: Data,
}

/// Where the data of an event is.
pub(super) enum Data {
    /// The data is the payload.
    Payload,
    /// The data was in the payload, together with the attributes.
    Inside(Bytes),
    /// The event has no data.
    None,
}

impl CloudEvent {
    /// The id of the event, which is unique together with the [`source`](Self::source).
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The context in which the event happened.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The type of the event.
    pub fn event_type(&self) -> &str {
        &self.0.kind
    }

    /// Any other attribute, such as `subject`, `time` (as text) or an extension attribute. The name is in lower case.
    /// In a JSON event, a value that is not a string is returned as its JSON text.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.0.others.get(name).map(String::as_str)
    }

    /// The key of `key = cloud_event_id`: source and id as a composite key, or a hash of both if the composite key
    /// would be too long.
    ///
    /// # Errors
    /// None in practice: neither part is empty.
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

    /// Creates an event from these attributes.
    pub(super) fn new(mut attributes: BTreeMap<String, String>, data: Data) -> Result<Self, String> {
        let mut required = |name: &str| {
            let value = attributes.remove(name).ok_or_else(|| format!("it has no `{name}`"))?;
            if value.is_empty() { Err(format!("its `{name}` is empty")) } else { Ok(value) }
        };
        let version = required(REQUIRED[0])?;
        if version != "1.0" {
            return Err(format!("its `specversion` is {version:?}, and 1.0 is known"));
        }
        let (id, source, kind) = (required(REQUIRED[1])?, required(REQUIRED[2])?, required(REQUIRED[3])?);
        Ok(Self(Arc::new(Event { id, source, kind, others: attributes, data })))
    }

    /// Returns the bytes to decode: the payload, or the data inside it. `None` if there is no data.
    pub(crate) fn data<'a>(&'a self, payload: &'a Bytes) -> Option<&'a Bytes> {
        match &self.0.data {
            Data::Payload => Some(payload),
            Data::Inside(data) => Some(data),
            Data::None => None,
        }
    }
}

/// Shows the identity and the type, but no other attribute.
impl fmt::Debug for CloudEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { id, source, kind, .. } = &*self.0;
        f.debug_struct("CloudEvent").field("id", id).field("source", source).field("type", kind).finish_non_exhaustive()
    }
}
