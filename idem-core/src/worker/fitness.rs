//! Whether a worker's handlers fit each other, and its source: asked before it starts.

use std::sync::Arc;

use crate::registry::Registered;
use crate::{Error, Source, Store};

/// A key that can never be made would make a dead letter of every message.
pub(super) fn keys<S: Store>(source: &impl Source, handlers: &[Arc<dyn Registered<S>>]) -> Result<(), Error> {
    for handler in handlers {
        let needs = handler.needs();
        let missing = [
            (needs.position && !source.has_positions(), "position", "positions"),
            (needs.partition_key && !source.has_partition_keys(), "partition key", "partition keys"),
        ];
        if let Some((_, one, many)) = missing.into_iter().find(|(missing, ..)| *missing) {
            return Err(Error::Refused(format!(
                "the key of the handler {:?} is the {one} of the message, and {} ({}) has no {many}: take the message id, a \
                 header or a field of the message as the key",
                handler.name(),
                source.name(),
                source.system()
            )));
        }
    }
    Ok(())
}

/// Two handlers of one name would share their claims; of two for one type of event, only one would ever run.
pub(super) fn distinct<S: Store>(handlers: &[Arc<dyn Registered<S>>]) -> Result<(), Error> {
    for (at, handler) in handlers.iter().enumerate() {
        let (name, event) = (handler.name(), handler.event());
        if name.is_empty() || name.len() > 200 || name.contains('\0') {
            return Err(Error::Refused(format!("the handler name {name:?} must have 1 to 200 bytes and no NUL")));
        }
        for earlier in &handlers[..at] {
            if earlier.name() == name {
                return Err(Error::Refused(format!(
                    "two handlers have the name {name:?}: give one of them another, `#[idempotent(name = \"..\")]`"
                )));
            }
            if earlier.event() == event {
                let event = event.map_or_else(|| "no type of event".to_owned(), |event| format!("the event {event:?}"));
                return Err(Error::Refused(format!(
                    "the handlers {:?} and {name:?} both name {event}: give each its own, `#[idempotent(event = \
                     \"..\")]`",
                    earlier.name()
                )));
            }
        }
    }
    Ok(())
}
