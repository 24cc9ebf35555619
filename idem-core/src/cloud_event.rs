//! CloudEvents.

mod binary;
mod event;
mod structured;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::Delivery;

pub use event::CloudEvent;

/// Reads the delivery as a CloudEvent. `None` if it is not marked as an event; an error says why a marked one is
/// invalid.
pub(crate) fn read(delivery: &Delivery) -> Option<Result<CloudEvent, Arc<str>>> {
    let read = match structured::format(delivery.content_type()) {
        Some(format) => Some(structured::read(delivery, &format)),
        None => binary::read(delivery.headers()),
    };
    read.map(|event| event.map_err(|why| format!("the delivery claims to be a CloudEvent, but {why}").into()))
}
