//! A staged message as a record of Kafka.

use idem_core::{SinkError, StagedMessage};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;

use crate::delivery::{CONTENT_TYPE, MESSAGE_ID};
use crate::wanted::is_name;

/// The header with the event type of a message.
const EVENT_TYPE: &str = "event-type";

/// The prefix of the attributes of a CloudEvent.
const CLOUD_EVENT: &str = "ce_";

/// Returns the record of a message, which is sent to a partition of its key's. It has no time: the client sets the
/// present one. With the time at which it was staged, a broker would remove a message that had waited for longer than
/// the topic's retention.
pub(crate) fn record(message: &StagedMessage, headers: OwnedHeaders) -> FutureRecord<'_, [u8], [u8]> {
    let record = FutureRecord::to(message.to()).payload(message.payload().as_ref()).headers(headers);
    match message.key() {
        Some(key) => record.key(key.as_bytes()),
        None => record,
    }
}

/// Returns the headers of a message: its own, and those of the sink, which replace others of the same name, in whichever
/// case: a source reads them so.
///
/// # Errors
/// Kafka's client cannot carry a name.
pub(crate) fn headers(message: &StagedMessage, cloud_events: Option<&str>) -> Result<OwnedHeaders, SinkError> {
    let mut ours = vec![(MESSAGE_ID.to_owned(), message.id().to_string())];
    for (name, value) in [(EVENT_TYPE, message.event_type()), (CONTENT_TYPE, message.content_type())] {
        ours.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
    let attributes = cloud_events.map(|source| message.cloud_event(source)).transpose()?.unwrap_or_default();
    ours.extend(attributes.into_iter().map(|(name, value)| (format!("{CLOUD_EVENT}{name}"), value)));
    let mut headers = OwnedHeaders::new_with_capacity(ours.len() + message.headers().len());
    for (key, value) in &ours {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    for (key, value) in message.headers().iter() {
        if key.contains('\0') {
            return Err(SinkError::message(format!(
                "the name of a header has a NUL, which Kafka's client cannot carry: {key:?}"
            )));
        }
        if !ours.iter().any(|(name, _)| name.eq_ignore_ascii_case(key)) {
            headers = headers.insert(Header { key, value: Some(value) });
        }
    }
    Ok(headers)
}

/// Checks that a topic can have this name.
pub(crate) fn check_topic(name: &str) -> Result<(), SinkError> {
    if is_name(name) {
        return Ok(());
    }
    Err(SinkError::message(format!(
        "{name:?} is not the name of a topic: it has 1 to 249 letters and digits of ASCII, dots, underscores and hyphens"
    )))
}

#[cfg(test)]
mod tests {
    use idem_core::Outgoing;
    use rdkafka::message::Headers;

    use super::*;

    fn message(outgoing: Outgoing) -> StagedMessage {
        StagedMessage::new("00000000-0000-0000-0000-000000000007".parse().unwrap(), outgoing)
    }

    #[test]
    fn the_headers_of_the_sink_replace_others() {
        let outgoing =
            Outgoing::new("a", "").header("Message-Id", "9").header("CE_ID", "9").header("a", "1").header("a", "2");
        let headers =
            headers(&message(outgoing.event_type("paid").content_type("text/plain")), Some("/shop \u{e9}")).unwrap();
        let all: Vec<_> = headers
            .iter()
            .map(|header| (header.key.to_owned(), String::from_utf8(header.value.unwrap().to_vec()).unwrap()))
            .collect();
        let values = |name: &str| {
            let found = all.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        let id = "00000000-0000-0000-0000-000000000007";
        assert_eq!((values("message-id"), values("ce_id"), values("a")), (vec![id], vec![id], vec!["1", "2"]));
        assert_eq!((values("event-type"), values("content-type")), (vec!["paid"], vec!["text/plain"]));
        assert_eq!(values("ce_source"), ["/shop \u{e9}"]);
    }

    #[test]
    fn a_topic_has_the_name_that_brokers_allow() {
        for name in ["", ".", "..", "a b", "a/b", "\u{e9}", "a\0", &"x".repeat(250)] {
            assert!(check_topic(name).is_err(), "{name}");
        }
        for name in ["a", "orders.paid", "A_b-9", "...", &"x".repeat(249)] {
            check_topic(name).unwrap();
        }
    }
}
