//! Conversion of lapin's deliveries.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use idem_core::{Delivery, Headers, Properties};
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use serde_json::Value;

/// Headers in which the broker counts deliveries.
const VOLATILE: [&str; 3] = ["x-delivery-count", "x-acquired-count", "x-delivered-count"];

/// Converts a message, whose payload is taken out. `x-delivery-count` does not count attempts: a crash raises it for
/// everything prefetched. Producers can set it too, so it is used only if the server reports an earlier delivery of the
/// message.
pub(crate) fn delivery(queue: &Arc<str>, message: &mut lapin::message::Delivery) -> Delivery {
    let (data, facts) = (mem::take(&mut message.data), &message.properties);
    let text = |property: &Option<ShortString>| property.as_ref().map(ToString::to_string);
    let made = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    Delivery::new(Arc::clone(queue), data)
        .with_headers(facts.headers().as_ref().map(headers).unwrap_or_default())
        .with_message_id(text(facts.message_id()))
        .with_event_type(text(facts.kind()))
        .with_subject(Some(message.routing_key.to_string()))
        .with_content_type(text(facts.content_type()))
        .with_correlation_id(text(facts.correlation_id()))
        .with_reply_to(text(facts.reply_to()))
        // The producer's clock: the server sets no timestamp.
        .with_produced_at(facts.timestamp().and_then(made))
        .with_properties(properties(message.exchange.as_str(), facts))
        .with_volatile_headers(&VOLATILE)
        .with_redelivered(message.redelivered)
        .with_delivery_count(facts.headers().as_ref().filter(|_| message.redelivered).and_then(count))
}

/// Returns the properties that other brokers do not have. The default exchange has no name.
fn properties(exchange: &str, facts: &BasicProperties) -> Properties {
    let number = |number: &Option<u8>| number.map(|number| number.to_string());
    let text = |property: &Option<ShortString>| property.as_ref().map(ToString::to_string);
    let all = [
        ("app_id", text(facts.app_id())),
        ("cluster_id", text(facts.cluster_id())),
        ("content_encoding", text(facts.content_encoding())),
        ("delivery_mode", number(facts.delivery_mode())),
        ("exchange", (!exchange.is_empty()).then(|| exchange.to_owned())),
        ("expiration", text(facts.expiration())),
        ("priority", number(facts.priority())),
        ("user_id", text(facts.user_id())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn count(table: &FieldTable) -> Option<u32> {
    u32::try_from(json(table.inner().get(VOLATILE[0])?).as_u64()?).ok()
}

fn headers(table: &FieldTable) -> Headers {
    table.into_iter().map(|(name, value)| (name.as_str(), value_bytes(value))).collect()
}

fn value_bytes(value: &AMQPValue) -> Bytes {
    match value {
        AMQPValue::LongString(text) => Bytes::copy_from_slice(text.as_bytes()),
        AMQPValue::ShortString(text) => Bytes::copy_from_slice(text.as_str().as_bytes()),
        AMQPValue::ByteArray(bytes) => Bytes::copy_from_slice(bytes.as_slice()),
        // Not through JSON, which has no NaN.
        AMQPValue::Float(number) => number.to_string().into(),
        AMQPValue::Double(number) => number.to_string().into(),
        AMQPValue::DecimalValue(number) => decimal(number.value, number.scale).into(),
        other => json(other).to_string().into(),
    }
}

/// Converts a value to JSON. In an array or a table, a string that is not UTF-8 is converted lossily; elsewhere it
/// keeps its bytes.
fn json(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(value) => (*value).into(),
        AMQPValue::ShortShortInt(number) => (*number).into(),
        AMQPValue::ShortShortUInt(number) => (*number).into(),
        AMQPValue::ShortInt(number) => (*number).into(),
        AMQPValue::ShortUInt(number) => (*number).into(),
        AMQPValue::LongInt(number) => (*number).into(),
        AMQPValue::LongUInt(number) => (*number).into(),
        AMQPValue::LongLongInt(number) => (*number).into(),
        AMQPValue::Timestamp(seconds) => (*seconds).into(),
        AMQPValue::Float(number) => (*number).into(),
        AMQPValue::Double(number) => (*number).into(),
        AMQPValue::DecimalValue(number) => decimal(number.value, number.scale).into(),
        AMQPValue::ShortString(text) => text.as_str().into(),
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into(),
        AMQPValue::ByteArray(bytes) => String::from_utf8_lossy(bytes.as_slice()).into(),
        AMQPValue::FieldArray(values) => values.as_slice().iter().map(json).collect(),
        AMQPValue::FieldTable(table) => {
            table.into_iter().map(|(name, value)| (name.to_string(), json(value))).collect()
        }
        AMQPValue::Void => Value::Null,
    }
}

/// Formats `value` with `scale` digits after the decimal point.
fn decimal(value: u32, scale: u8) -> String {
    let scale = usize::from(scale);
    let digits = format!("{value:0>width$}", width = scale + 1);
    let (whole, rest) = digits.split_at(digits.len() - scale);
    if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") }
}

#[cfg(test)]
mod tests {
    use lapin::types::{DecimalValue, FieldArray, LongString};

    use super::*;

    fn table(entries: Vec<(&str, AMQPValue)>) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in entries {
            table.insert(name.into(), value);
        }
        table
    }

    #[test]
    fn strings_and_bytes_keep_their_bytes() {
        let raw = vec![0, 0xff, b'a'];
        assert_eq!(value_bytes(&AMQPValue::LongString(LongString::from(raw.clone()))), raw);
        assert_eq!(value_bytes(&AMQPValue::ByteArray(raw.clone().into())), raw);
        assert_eq!(value_bytes(&AMQPValue::LongString("".into())), "");
    }

    #[test]
    fn values_other_than_strings_become_text() {
        let text = |value| String::from_utf8(value_bytes(&value).to_vec()).unwrap();
        assert_eq!(text(AMQPValue::Boolean(true)), "true");
        assert_eq!(text(AMQPValue::LongLongInt(i64::MIN)), "-9223372036854775808");
        assert_eq!(text(AMQPValue::Timestamp(1_700_000_000)), "1700000000");
        assert_eq!(text(AMQPValue::Double(f64::NAN)), "NaN");
        assert_eq!(text(AMQPValue::Double(0.1)), "0.1");
        assert_eq!(text(AMQPValue::Void), "null");
        assert_eq!(text(AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 12345 })), "123.45");
        assert_eq!(text(AMQPValue::DecimalValue(DecimalValue { scale: 3, value: 7 })), "0.007");
        assert_eq!(text(AMQPValue::DecimalValue(DecimalValue { scale: 0, value: 7 })), "7");
        assert_eq!(text(AMQPValue::DecimalValue(DecimalValue { scale: 255, value: 7 })).len(), 257);
    }

    #[test]
    fn arrays_and_tables_become_json() {
        let inner = table(vec![("n", AMQPValue::LongInt(1)), ("raw", AMQPValue::LongString(vec![0xff].into()))]);
        let array = FieldArray::from(vec![AMQPValue::FieldTable(inner), AMQPValue::Void, AMQPValue::Float(0.5)]);
        assert_eq!(value_bytes(&AMQPValue::FieldArray(array)), "[{\"n\":1,\"raw\":\"\u{fffd}\"},null,0.5]");
    }
}
