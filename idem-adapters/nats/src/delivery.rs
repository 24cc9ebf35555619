//! Converts JetStream messages to deliveries.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use idem_core::{Delivery, Headers};
use uuid::Uuid;

/// The metadata of a delivery, from the subject of its ack (ADR-15 of nats-architecture-and-design).
#[derive(Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) sequence: u64,
    delivered: u64,
    /// Nanoseconds since 1970, by the server's clock.
    published: u64,
}

impl Facts {
    /// Returns `None` if this is not the subject of an ack.
    pub(crate) fn parse(reply: &str) -> Option<Self> {
        let (_, numbers) = split(reply)?;
        let mut numbers = numbers.split('.').map_while(|number| number.parse().ok());
        // The third is the number of the delivery.
        let [delivered, sequence, _, published] = [numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?];
        Some(Self { sequence, delivered, published })
    }
}

/// Returns the part of an ack's subject that all messages of a consumer have in common.
pub(crate) fn common(reply: &str) -> Option<&str> {
    split(reply).map(|(common, _)| common)
}

/// Splits the subject of an ack before the numbers of the message.
fn split(reply: &str) -> Option<(&str, &str)> {
    let tokens = reply.strip_prefix("$JS.ACK.")?.split('.').count();
    // Stream and consumer. Since its second version, the subject has the domain and the account before them.
    let names = if tokens >= 9 { 4 } else { 2 };
    let (end, _) = reply.match_indices('.').nth(1 + names)?;
    Some((&reply[..end], &reply[end + 1..]))
}

/// Converts a message. The server's delivery count is not used as the attempt, because it also rises for messages that
/// were only prefetched.
pub(crate) fn delivery(stream: &Arc<str>, message: Message, facts: &Facts, ordering_key: Option<u64>) -> Delivery {
    let (headers, id) = message.headers.as_ref().map(headers).unwrap_or_default();
    let id = id.map(|id| own(&id, &message.subject).map_or(id.clone(), ToOwned::to_owned));
    let is_tombstone = message.payload.is_empty() && message.headers.as_ref().is_some_and(deletes);
    Delivery::new(Arc::clone(stream), message.payload)
        .with_tombstone(is_tombstone)
        .with_subject(Some(message.subject.to_string()))
        .with_content_type(content_type(&headers))
        .with_headers(headers)
        .with_message_id(id)
        // Includes the time, because a recreated stream numbers its messages from 1 again.
        .with_position(Some(format!("{stream}/{}@{}", facts.sequence, facts.published)))
        .with_published_at(SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(facts.published)))
        .with_redelivered(facts.delivered > 1)
        .with_ordering_key(ordering_key)
}

/// Returns the id of a message that idem's sink has published: a UUID, in front of the subject.
fn own<'a>(id: &'a str, subject: &str) -> Option<&'a str> {
    let (id, of) = id.split_once('/')?;
    let is_own = |uuid: Uuid| uuid.hyphenated().to_string() == id;
    (of == subject && id.parse().is_ok_and(is_own)).then_some(id)
}

/// Returns whether these are the headers of a deleted or purged key of a bucket, or of the marker that a server writes when
/// the last message of a subject expires or is removed.
fn deletes(headers: &HeaderMap) -> bool {
    let operation = headers.get("KV-Operation").map(|value| value.as_str());
    matches!(operation, Some("DEL" | "PURGE")) || headers.get("Nats-Marker-Reason").is_some()
}

fn content_type(headers: &Headers) -> Option<String> {
    let (_, value) = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-type")).last()?;
    std::str::from_utf8(value).ok().map(ToOwned::to_owned)
}

/// Returns the headers and the message id, unless there are several different ones. The headers are sorted by name, because async-nats does not keep the order
/// of names; the values of one name keep their order.
fn headers(map: &HeaderMap) -> (Headers, Option<String>) {
    let mut names: Vec<_> = map.iter().map(|(name, values)| (name.to_string(), values)).collect();
    names.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
    let mut headers = Headers::new();
    for (name, values) in names {
        for value in values {
            headers.push(name.as_str(), Bytes::copy_from_slice(value.as_str().as_bytes()));
        }
    }
    let mut ids = map.get_all(NATS_MESSAGE_ID);
    let id = ids.next().filter(|id| ids.all(|other| other == *id));
    (headers, id.map(ToString::to_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_own_message_is_that_of_the_outbox() {
        let uuid = Uuid::nil().to_string();
        assert_eq!(own(&format!("{uuid}/a.b"), "a.b"), Some(&*uuid));
        for (id, subject) in [(format!("{uuid}/a.b"), "a"), ("7/a".to_owned(), "a"), (uuid.clone(), "a")] {
            assert_eq!(own(&id, subject), None, "{id}");
        }
    }

    #[test]
    fn the_subject_of_an_ack_is_read_in_both_versions() {
        let facts = Some(Facts { sequence: 7, delivered: 2, published: 1_700_000_000_000_000_001 });
        for reply in [
            "$JS.ACK.ORDERS.billing.2.7.9.1700000000000000001.0",
            "$JS.ACK._.hash.ORDERS.billing.2.7.9.1700000000000000001.0",
            "$JS.ACK.hub.hash.ORDERS.billing.2.7.9.1700000000000000001.0.token.more",
        ] {
            assert_eq!(Facts::parse(reply), facts, "{reply}");
            let names = common(reply).unwrap();
            assert!(names.ends_with(".ORDERS.billing") && reply.starts_with(names), "{names}");
        }
        for reply in ["", "_INBOX.x.1", "$JS.ACK.", "$JS.ACK.ORDERS.billing.2.x.9.1.0", "$JS.ACK.a.b.1.2"] {
            assert_eq!(Facts::parse(reply), None, "{reply}");
        }
    }
}
