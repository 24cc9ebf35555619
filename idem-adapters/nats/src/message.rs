//! A staged message as NATS sends it.

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue, NATS_MESSAGE_ID};
use idem_core::{SinkError, StagedMessage};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

/// The headers with the key and the event type of a message.
pub(crate) const KEY: &str = "idem-key";
pub(crate) const EVENT_TYPE: &str = "event-type";
const CONTENT_TYPE: &str = "Content-Type";

/// The prefix of headers that are orders to a stream: to remove other messages (`Nats-Rollup`), or this one after a time
/// (`Nats-TTL`), or to store it only if the stream is in some state (`Nats-Expected-*`).
const RESERVED: &str = "nats-";

/// The prefix of the attributes of a CloudEvent.
const CLOUD_EVENT: &str = "ce-";

/// Everything but printable ASCII, and what CloudEvents encodes besides.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Returns the headers of a message: its own, and those of the sink, which replace others of the same name. A stream
/// compares `Nats-Msg-Id` across its subjects, so the subject is part of it.
///
/// # Errors
/// NATS cannot carry one: values are text of one line.
pub(crate) fn headers(
    message: &StagedMessage,
    subject: &str,
    cloud_events: Option<&str>,
) -> Result<HeaderMap, SinkError> {
    let mut headers = HeaderMap::new();
    for (name, value) in message.headers().iter() {
        if name.get(..RESERVED.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(RESERVED)) {
            return Err(SinkError::message(format!(
                "a stream takes the header `{name}`, as all that begin with `Nats-`, as an order: use another name"
            )));
        }
        headers.append(header_name(name)?, header_value(name, value)?);
    }
    headers.insert(NATS_MESSAGE_ID, format!("{}/{subject}", message.id()));
    for (name, value) in [(EVENT_TYPE, message.event_type()), (CONTENT_TYPE, message.content_type())] {
        if let Some(value) = value {
            headers.insert(header_name(name)?, header_value(name, value.as_bytes())?);
        }
    }
    if let Some(key) = message.key() {
        headers.insert(KEY, encoded(key.as_bytes()));
    }
    // NATS has no place of its own for the content type of a CloudEvent.
    if let (Some(content_type), Some(_)) = (message.content_type(), cloud_events) {
        headers.insert(format!("{CLOUD_EVENT}datacontenttype").as_str(), encoded(content_type.as_bytes()));
    }
    for (name, value) in cloud_events.map(|source| message.cloud_event(source)).transpose()?.unwrap_or_default() {
        headers.insert(format!("{CLOUD_EVENT}{name}").as_str(), encoded(value.as_bytes()));
    }
    Ok(headers)
}

/// Checks that a message can be published to a subject: it has no wildcards, and no empty part.
pub(crate) fn check_subject(subject: &str) -> Result<(), SinkError> {
    let invalid = |part: &str| part.is_empty() || part == "*" || part == ">" || part.contains(char::is_whitespace);
    match subject.split('.').any(invalid) {
        true => Err(SinkError::message(format!(
            "{subject:?} is not a subject: it has parts separated by dots, without blanks, none of them empty, * or >"
        ))),
        false => Ok(()),
    }
}

/// Returns the size of headers as they are sent.
pub(crate) fn size(headers: &HeaderMap) -> usize {
    const BEGIN_AND_END: usize = "NATS/1.0\r\n\r\n".len();
    const EACH: usize = ": \r\n".len();
    let lines = headers.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    lines.map(|(name, value)| AsRef::<str>::as_ref(name).len() + value.as_str().len() + EACH).sum::<usize>()
        + BEGIN_AND_END
}

fn encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, ENCODED).to_string()
}

fn header_name(name: &str) -> Result<HeaderName, SinkError> {
    name.parse().map_err(|_| {
        SinkError::message(format!("NATS cannot carry the header name {name:?}: use printable ASCII without colons"))
    })
}

fn header_value(name: &str, value: &[u8]) -> Result<HeaderValue, SinkError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        SinkError::message(format!(
            "NATS cannot carry the value of the header `{name}`: it has to be one line of UTF-8"
        ))
    })
}

#[cfg(test)]
mod tests {
    use idem_core::Outgoing;

    use super::*;

    fn message(outgoing: Outgoing) -> StagedMessage {
        StagedMessage::new("00000000-0000-0000-0000-000000000007".parse().unwrap(), outgoing)
    }

    #[test]
    fn the_headers_of_the_sink_replace_others() {
        let outgoing = Outgoing::new("a", "").key("a b%").header("idem-key", "9").header("ce-source", "9");
        let headers = headers(&message(outgoing), "a", Some("/shop \u{e9}")).unwrap();
        let all = |name: &str| headers.get_all(name).map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(all("idem-key"), ["a%20b%25"]);
        assert_eq!(all("Nats-Msg-Id"), ["00000000-0000-0000-0000-000000000007/a"]);
        assert_eq!(all("ce-source"), ["/shop%20%C3%A9"]);
    }

    #[test]
    fn the_content_type_of_a_cloud_event_is_an_attribute_as_well() {
        let typed = message(Outgoing::new("a", "").content_type("text/plain"));
        let value = |headers: &HeaderMap, name: &str| headers.get(name).map(ToString::to_string);
        let event = headers(&typed, "a", Some("/shop")).unwrap();
        assert_eq!(value(&event, "ce-datacontenttype").as_deref(), Some("text/plain"));
        assert_eq!(value(&event, "Content-Type").as_deref(), Some("text/plain"));
        assert_eq!(value(&headers(&typed, "a", None).unwrap(), "ce-datacontenttype"), None);
    }

    #[test]
    fn a_header_that_is_an_order_to_the_stream_is_refused() {
        for name in ["Nats-Rollup", "nats-ttl", "Nats-Expected-Stream", "Nats-Msg-Id"] {
            let Err(SinkError::Message(error)) =
                headers(&message(Outgoing::new("a", "").header(name, "secret")), "a", None)
            else {
                panic!("{name}")
            };
            assert!(error.to_string().contains(name) && !error.to_string().contains("secret"), "{error}");
        }
        assert!(headers(&message(Outgoing::new("a", "").header("nats", "1")), "a", None).is_ok());
    }

    #[test]
    fn a_subject_with_a_wildcard_is_no_destination() {
        for subject in ["", "a..b", ".a", "a.", "a.*", "a.>", "a b"] {
            assert!(check_subject(subject).is_err(), "{subject}");
        }
        for subject in ["a", "a.b", "a*.b>", "\u{e9}"] {
            check_subject(subject).unwrap();
        }
    }
}
