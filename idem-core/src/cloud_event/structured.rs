//! Events that are one JSON object with attributes and data.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Delivery;

use super::event::{CloudEvent, Data, REQUIRED};

/// The prefix of the media type of an event in any format.
const MEDIA: &str = "application/cloudevents";

/// Returns the rest of the content type after the media type of CloudEvents, if the content type begins with it.
pub(super) fn format(content_type: Option<&str>) -> Option<String> {
    let media = content_type?.split(';').next()?.trim().to_ascii_lowercase();
    media.strip_prefix(MEDIA).map(ToOwned::to_owned)
}

pub(super) fn read(delivery: &Delivery, format: &str) -> Result<CloudEvent, String> {
    match format {
        // A producer on NATS may omit the format.
        "+json" | "" => {}
        "-batch" | "-batch+json" => return Err("it is a batch of events, and one message is one event".to_owned()),
        other => return Err(format!("its format is `{MEDIA}{other}`, and only that of JSON is known")),
    }
    let payload = delivery.payload();
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_slice(crate::codec::without_mark(payload))
        .map_err(|error| format!("its payload is no JSON object: {error}"))?;
    let data = members.remove("data");
    let encoded = members.remove("data_base64").filter(|encoded| encoded.get() != "null");
    // A null attribute counts as missing.
    let attributes = members
        .into_iter()
        .filter_map(|(name, value)| attribute(&name, value).transpose().map(|value| value.map(|value| (name, value))));
    let attributes: BTreeMap<_, _> = attributes.collect::<Result<_, _>>()?;
    let of = attributes.get("datacontenttype").map(String::as_str);
    let data = match (data, encoded) {
        (Some(_), Some(_)) => return Err("it has both `data` and `data_base64`".to_owned()),
        (Some(data), None) => Data::Inside(plain(payload, data, of)?),
        (None, Some(encoded)) => Data::Inside(decoded(encoded)?),
        (None, None) => Data::None,
    };
    CloudEvent::new(attributes, data)
}

/// An attribute as text; `None` if it is null.
fn attribute(name: &str, value: &RawValue) -> Result<Option<String>, String> {
    let of_text = || REQUIRED.contains(&name) || name == "datacontenttype";
    match serde_json::from_str(value.get()) {
        Ok(Value::String(text)) => Ok(Some(text)),
        Ok(Value::Null) => Ok(None),
        _ if of_text() => Err(format!("its `{name}` is no string")),
        _ => Ok(Some(value.get().to_owned())),
    }
}

/// Returns the data: JSON as written, or the content of a string for any other content type.
fn plain(payload: &Bytes, data: &RawValue, of: Option<&str>) -> Result<Bytes, String> {
    if !is_json(of) && data.get().starts_with('"') {
        let text: String =
            serde_json::from_str(data.get()).map_err(|error| format!("its `data` is no text: {error}"))?;
        return Ok(text.into());
    }
    // Shares the payload's buffer instead of copying.
    Ok(payload.slice_ref(data.get().as_bytes()))
}

fn decoded(encoded: &RawValue) -> Result<Bytes, String> {
    let text: String = serde_json::from_str(encoded.get()).map_err(|_| "its `data_base64` is no string".to_owned())?;
    STANDARD.decode(text).map(Bytes::from).map_err(|error| format!("its `data_base64` is not Base64: {error}"))
}

/// Returns whether data of this content type is JSON, which is the default without a content type.
fn is_json(of: Option<&str>) -> bool {
    let Some(of) = of else { return true };
    let media = of.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.rsplit('/').next().is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
}
