//! Reading a delivery as a CloudEvent.

use std::sync::Arc;

use crate::Delivery;

use super::event::CloudEvent;
use super::{binary, structured};

/// Reads the delivery as a CloudEvent. `None` if it does not say that it is one; the error tells why it is none although
/// it says so.
pub(crate) fn read(delivery: &Delivery) -> Option<Result<CloudEvent, Arc<str>>> {
    let read = match structured::format(delivery.content_type()) {
        Some(format) => Some(structured::read(delivery, &format)),
        None => binary::read(delivery.headers()),
    };
    read.map(|event| event.map_err(|why| format!("the delivery claims to be a CloudEvent, but {why}").into()))
}
