//! CloudEvents.

mod event;
mod structured;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use percent_encoding::percent_decode;

use crate::{Delivery, Headers};

pub use event::CloudEvent;
use event::{Data, REQUIRED};

/// Reads the delivery as a CloudEvent. `None` if it is not marked as an event; an error says why a marked one is
/// invalid.
pub(crate) fn read(delivery: &Delivery) -> Option<Result<CloudEvent, Arc<str>>> {
    let read = match structured::format(delivery.content_type()) {
        Some(format) => Some(structured::read(delivery, &format)),
        None => in_headers(delivery.headers()),
    };
    read.map(|event| event.map_err(|why| format!("the delivery claims to be a CloudEvent, but {why}").into()))
}

/// The prefixes of attribute names: in AMQP, in Kafka, and in NATS and HTTP. All are accepted on every broker, because
/// bridges copy headers unchanged.
const PREFIXES: [&str; 4] = ["cloudEvents:", "cloudEvents_", "ce_", ENCODED];

/// In NATS and HTTP, characters other than printable ASCII are percent-encoded.
const ENCODED: &str = "ce-";

/// Reads an event whose attributes are headers and whose data is the payload. `None` if none of the required attributes is
/// present.
fn in_headers(headers: &Headers) -> Option<Result<CloudEvent, String>> {
    let attributes = || headers.iter().filter_map(|(name, value)| Some((attribute(name)?, value)));
    let claims = |((_, name), _): &((_, &str), _)| REQUIRED.iter().any(|required| name.eq_ignore_ascii_case(required));
    attributes().any(|attribute| claims(&attribute)).then(|| {
        let mut all = BTreeMap::<String, String>::new();
        for ((prefix, name), value) in attributes() {
            let (name, value) = (name.to_ascii_lowercase(), text(prefix, value).ok_or_else(|| no_text(name))?);
            if all.get(&name).is_some_and(|other| *other != value) {
                return Err(format!("it has two `{name}`"));
            }
            all.insert(name, value);
        }
        CloudEvent::new(all, Data::Payload)
    })
}

/// Splits a header's name into the prefix and the name of the attribute.
fn attribute(header: &str) -> Option<(&'static str, &str)> {
    PREFIXES.into_iter().find_map(|prefix| {
        let (begin, name) = header.split_at_checked(prefix.len())?;
        (begin.eq_ignore_ascii_case(prefix) && !name.is_empty()).then_some((prefix, name))
    })
}

fn text(prefix: &str, value: &[u8]) -> Option<String> {
    let value = if prefix == ENCODED { percent_decode(value).collect() } else { value.to_vec() };
    String::from_utf8(value).ok()
}

fn no_text(name: &str) -> String {
    format!("its `{name}` is not UTF-8")
}
