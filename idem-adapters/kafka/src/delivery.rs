//! Converts Kafka records to deliveries.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use idem_core::{Delivery, DeliveryOrder, Headers};
use rdkafka::Timestamp;
use rdkafka::message::{BorrowedMessage, Message};

use crate::headers::headers;

/// The headers with the id and the content type of a message, in whichever case. A sink writes them too.
pub(crate) const MESSAGE_ID: &str = "message-id";
pub(crate) const CONTENT_TYPE: &str = "content-type";

/// Converts a record to a delivery. A record that cannot be represented is marked as such and becomes a dead letter.
pub(crate) fn delivery(topic: &Arc<str>, record: &BorrowedMessage<'_>, order: DeliveryOrder) -> Delivery {
    let (headers, unrepresentable) = headers(record);
    facts(topic, record, order)
        .with_message_id(id(&headers))
        .with_content_type(text(&headers, CONTENT_TYPE))
        .with_headers(headers)
        .with_unrepresentable(unrepresentable)
}

/// Converts everything but the headers.
fn facts(topic: &Arc<str>, record: &impl Message, order: DeliveryOrder) -> Delivery {
    let (partition, offset) = (record.partition(), record.offset());
    if order == DeliveryOrder::Key && record.key().is_none() {
        warn_of_no_key(topic, partition, offset);
    }
    let payload = record.payload().map(Bytes::copy_from_slice);
    Delivery::new(Arc::clone(topic), payload.clone().unwrap_or_default())
        .with_tombstone(payload.is_none())
        .with_partition_key(record.key().map(Bytes::copy_from_slice))
        .with_position(position(topic, partition, offset, record.timestamp()))
        .with_published_at(published_at(record.timestamp()))
        .with_produced_at(produced_at(record.timestamp()))
        .with_ordering_key(ordering_key(order, (topic, partition), record.key()))
}

fn warn_of_no_key(topic: &str, partition: i32, offset: i64) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::warn!(
            topic,
            partition,
            offset,
            "a record has no key, but the worker uses DeliveryOrder::Key: all records of a partition that have no key share \
             one ordering key. Publish records with a key, or use DeliveryOrder::Partition. The process logs this \
             warning once"
        );
    });
}

/// The position includes the timestamp, because offsets of a recreated topic start at 0 again.
fn position(topic: &str, partition: i32, offset: i64, timestamp: Timestamp) -> Option<String> {
    timestamp.to_millis().map(|time| format!("{topic}/{partition}/{offset}@{time}"))
}

/// The header with the message id, unless there are several different ones: none of them is the key then.
fn id(headers: &Headers) -> Option<String> {
    let is_one = named(headers, MESSAGE_ID).zip(named(headers, MESSAGE_ID).skip(1)).all(|(one, next)| one == next);
    text(headers, MESSAGE_ID).filter(|_| is_one)
}

/// The values of the headers of this name.
fn named<'a>(headers: &'a Headers, wanted: &str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
}

/// The last header of this name, if it is UTF-8 and not empty. Otherwise it is available only as a header.
fn text(headers: &Headers, wanted: &str) -> Option<String> {
    let value = named(headers, wanted).last()?;
    std::str::from_utf8(value).ok().filter(|text| !text.is_empty()).map(ToOwned::to_owned)
}

/// Only `LogAppendTime`: the other kind of timestamp is the producer's clock.
fn published_at(timestamp: Timestamp) -> Option<SystemTime> {
    let Timestamp::LogAppendTime(millis) = timestamp else { return None };
    time(millis)
}

fn produced_at(timestamp: Timestamp) -> Option<SystemTime> {
    let Timestamp::CreateTime(millis) = timestamp else { return None };
    time(millis)
}

fn time(millis: i64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(millis).ok()?))
}

fn ordering_key(order: DeliveryOrder, partition: (&str, i32), key: Option<&[u8]>) -> Option<u64> {
    let key = match order {
        DeliveryOrder::Partition => None,
        DeliveryOrder::Key => key,
        _ => return None,
    };
    let mut hasher = DefaultHasher::new();
    // Keys are ordered within one partition only. A producer may send one key to several partitions, and there is no
    // order between those.
    (partition, key).hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use rdkafka::message::OwnedMessage;

    use super::*;

    #[test]
    fn a_record_without_a_key_is_warned_about_once_where_the_order_is_that_of_keys() {
        let record = |key: Option<&[u8]>| {
            let (key, time) = (key.map(<[u8]>::to_vec), Timestamp::CreateTime(1));
            OwnedMessage::new(None, key, "orders".to_owned(), time, 2, 7, None)
        };
        let (text, subscriber) = idem_conformance::captured();
        tracing::subscriber::with_default(subscriber, || {
            for (order, key) in [
                (DeliveryOrder::Partition, None),
                (DeliveryOrder::Key, Some(&b"k"[..])),
                (DeliveryOrder::Key, None),
                (DeliveryOrder::Key, None),
            ] {
                facts(&"orders".into(), &record(key), order);
            }
        });
        let text = text.to_string();
        assert!(text.contains("WARN") && text.contains("has no key") && text.contains("offset=7"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn a_position_has_the_time_or_does_not_exist() {
        let at = |timestamp| position("orders", 2, 7, timestamp);
        assert_eq!(at(Timestamp::CreateTime(1_700_000_000_000)).as_deref(), Some("orders/2/7@1700000000000"));
        assert_eq!(at(Timestamp::LogAppendTime(1)).as_deref(), Some("orders/2/7@1"));
        for none in [Timestamp::NotAvailable, Timestamp::CreateTime(-1), Timestamp::LogAppendTime(-1)] {
            assert_eq!(at(none), None);
        }
    }

    #[test]
    fn only_the_brokers_clock_tells_the_age() {
        assert_eq!(published_at(Timestamp::CreateTime(5000)), None);
        assert_eq!(published_at(Timestamp::NotAvailable), None);
        assert_eq!(published_at(Timestamp::LogAppendTime(-1)), None);
        let five = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        assert_eq!(published_at(Timestamp::LogAppendTime(5000)), Some(five));
        assert_eq!(
            (produced_at(Timestamp::CreateTime(5000)), produced_at(Timestamp::LogAppendTime(5000))),
            (Some(five), None)
        );
        assert_eq!(produced_at(Timestamp::CreateTime(-1)), None);
    }

    #[test]
    fn an_id_and_a_content_type_are_headers_of_that_name_that_are_text() {
        let of = |wanted: &str, name: &str, value: &'static [u8]| {
            text(&[(name.to_owned(), value)].into_iter().collect(), wanted)
        };
        assert_eq!(of(CONTENT_TYPE, "Content-Type", b"application/json").as_deref(), Some("application/json"));
        assert_eq!(of(MESSAGE_ID, "Message-ID", b"7").as_deref(), Some("7"));
        for (name, value) in [("message-id", &b"\xff"[..]), ("message-id", b""), ("message-ids", b"x"), ("id", b"x")] {
            assert_eq!(of(MESSAGE_ID, name, value), None, "{name}");
        }
    }

    #[test]
    fn the_last_of_several_headers_counts_and_two_different_ids_are_none() {
        let of = |wanted: &str, values: [&'static str; 2]| {
            let headers = [(wanted.to_uppercase(), values[0]), (wanted.to_owned(), values[1])].into_iter().collect();
            if wanted == MESSAGE_ID { id(&headers) } else { text(&headers, wanted) }
        };
        assert_eq!(of(CONTENT_TYPE, ["text/plain", "application/json"]).as_deref(), Some("application/json"));
        assert_eq!(of(MESSAGE_ID, ["7", "7"]).as_deref(), Some("7"));
        assert_eq!(of(MESSAGE_ID, ["7", "8"]), None);
    }

    #[test]
    fn an_ordering_key_is_a_partition_or_a_key_in_it() {
        assert_eq!(ordering_key(DeliveryOrder::None, ("orders", 1), Some(b"a")), None);
        let partition = |partition, key| ordering_key(DeliveryOrder::Partition, ("orders", partition), key);
        assert_eq!(partition(1, Some(&b"a"[..])), partition(1, None));
        assert_ne!(partition(1, None), partition(2, None));
        assert_ne!(partition(1, None), ordering_key(DeliveryOrder::Partition, ("payments", 1), None));
        let key = |partition, key| ordering_key(DeliveryOrder::Key, ("orders", partition), key);
        assert_eq!(key(1, Some(&b"a"[..])), key(1, Some(&b"a"[..])));
        assert_ne!(key(1, Some(&b"a"[..])), key(1, Some(&b"b"[..])));
        assert_ne!(key(1, Some(&b"a"[..])), key(2, Some(&b"a"[..])));
        assert_eq!(key(1, None), key(1, None));
        assert_ne!(key(1, None), key(1, Some(&b""[..])));
    }
}
