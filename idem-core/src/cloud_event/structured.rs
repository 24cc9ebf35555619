//! Events that are one JSON object with attributes and data.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Delivery;

use super::event::{CloudEvent, Data, REQUIRED};

/// The prefix of the media type of an event in any format.
const MEDIA: &str = "application/cloudevents";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

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
    let object: Object<'_> = serde_json::from_slice(crate::codec::without_mark(payload))
        .map_err(|error| format!("its payload is no JSON object: {error}"))?;
    let (mut attributes, mut data, mut encoded) = (Vec::new(), None, None);
    for (name, value) in object.0 {
        match name.as_str() {
            "data" => once(&mut data, &name, value)?,
            "data_base64" => once(&mut encoded, &name, value)?,
            _ => {
                if attributes.iter().any(|(other, _)| *other == name) {
                    return Err(format!("it has two `{name}`"));
                }
                // A null attribute counts as missing.
                let value = attribute(&name, value)?;
                attributes.extend(value.map(|value| (name, value)));
            }
        }
    }
    let encoded = encoded.filter(|encoded| encoded.get() != "null");
    let of = attributes.iter().find(|(name, _)| name == "datacontenttype").map(|(_, of)| of.as_str());
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
    BASE64.decode(text).map(Bytes::from).map_err(|error| format!("its `data_base64` is not Base64: {error}"))
}

/// Returns whether data of this content type is JSON, which is the default without a content type.
fn is_json(of: Option<&str>) -> bool {
    let Some(of) = of else { return true };
    let media = of.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media.rsplit('/').next().is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
}

fn once<'a>(slot: &mut Option<&'a RawValue>, name: &str, value: &'a RawValue) -> Result<(), String> {
    if slot.replace(value).is_some() { Err(format!("it has two `{name}`")) } else { Ok(()) }
}

/// The members of a JSON object in order, including duplicates.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}
