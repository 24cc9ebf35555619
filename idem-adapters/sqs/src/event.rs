//! A staged message as an event of EventBridge.

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use idem_core::{SinkError, StagedMessage};
use serde_json::{Map, Value};

use crate::envelope::URN;

/// The maximum size of an event. In some regions EventBridge takes only [`BATCH`], and refuses a larger one itself.
pub(crate) const LARGEST: usize = 1024 * 1024;

/// The maximum size of all events of a request, unless it is a single one.
pub(crate) const BATCH: usize = 256 * 1024;

/// The maximum length of a detail type, in characters.
const LONGEST_TYPE: usize = 128;

/// Converts a message.
///
/// # Errors
/// EventBridge cannot carry it.
pub(crate) fn event(message: &StagedMessage, bus: &str, source: &str) -> Result<PutEventsRequestEntry, SinkError> {
    let event_type = message.event_type().filter(|name| !name.is_empty()).unwrap_or(message.to());
    if event_type.is_empty() || event_type.chars().count() > LONGEST_TYPE {
        return Err(SinkError::message(format!(
            "the detail type of an event has 1 to {LONGEST_TYPE} characters, and that of this message is {event_type:?}: give \
             the message another event type, or a destination"
        )));
    }
    let payload = message.payload();
    let detail =
        std::str::from_utf8(payload).ok().filter(|text| serde_json::from_str::<Map<String, Value>>(text).is_ok());
    let Some(detail) = detail else {
        return Err(SinkError::message(format!(
            "EventBridge carries only JSON objects, and its payload of {} bytes is none: publish it to another broker",
            payload.len()
        )));
    };
    let entry = PutEventsRequestEntry::builder()
        .event_bus_name(bus)
        .source(source)
        .detail_type(event_type)
        .detail(detail)
        .resources(format!("{URN}{}", message.id()))
        .build();
    let size = size(&entry);
    if size > LARGEST {
        return Err(SinkError::message(format!(
            "its payload has {} bytes, which are {size} as an event, and EventBridge takes at most {LARGEST}: send less, or a \
             reference",
            payload.len()
        )));
    }
    Ok(entry)
}

/// Returns the size of an entry, as EventBridge counts it.
pub(crate) fn size(entry: &PutEventsRequestEntry) -> usize {
    let texts = [entry.source(), entry.detail_type(), entry.detail()];
    let texts = texts.into_iter().flatten().chain(entry.resources().iter().map(String::as_str));
    texts.map(str::len).sum()
}

#[cfg(test)]
mod tests {
    use idem_core::Outgoing;

    use super::*;

    fn converted(outgoing: Outgoing) -> Result<PutEventsRequestEntry, SinkError> {
        let id = "00000000-0000-0000-0000-000000000007".parse().unwrap();
        event(&StagedMessage::new(id, outgoing), "orders", "shop")
    }

    #[test]
    fn the_id_is_a_resource_and_the_type_is_that_of_the_event_or_the_destination() {
        let entry = converted(Outgoing::new("paid", "{\"n\": 1.10}").event_type("OrderPaid")).unwrap();
        assert_eq!((entry.detail_type(), entry.detail()), (Some("OrderPaid"), Some("{\"n\": 1.10}")));
        assert_eq!(entry.resources(), ["urn:idem:message:00000000-0000-0000-0000-000000000007"]);
        assert_eq!(converted(Outgoing::new("paid", "{}")).unwrap().detail_type(), Some("paid"));
    }

    #[test]
    fn what_eventbridge_cannot_carry_is_named() {
        for (payload, says) in [("", "JSON objects"), ("[]", "JSON objects"), ("{", "JSON objects")] {
            assert!(converted(Outgoing::new("paid", payload)).unwrap_err().to_string().contains(says), "{payload}");
        }
        let large = format!("{{\"x\":\"{}\"}}", "x".repeat(LARGEST));
        assert!(converted(Outgoing::new("paid", large)).unwrap_err().to_string().contains("1048576"));
        assert!(converted(Outgoing::new("", "{}")).unwrap_err().to_string().contains("the detail type"));
    }
}
