//! The attributes of a message, which become headers.

use std::collections::HashMap;

use aws_sdk_sqs::types::MessageAttributeValue;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use idem_core::Headers;

/// The attribute with the id of a message of an outbox.
pub(crate) const MESSAGE_ID: &str = "message-id";

/// The attribute that says how a payload that is not allowed in a body was encoded: [`BASE64`] or [`EMPTY`].
pub(crate) const ENCODING: &str = "idem-encoding";
pub(crate) const BASE64: &str = "base64";
pub(crate) const EMPTY: &str = "empty";

/// The type of an attribute whose value stands for an empty one, which SQS does not allow.
pub(crate) const EMPTY_TYPE: &str = "String.empty";

/// The body or the value that stands for an empty one.
pub(crate) const PLACEHOLDER: &str = "-";

/// The attributes of a message as text or bytes, in the order of their names, and then those of its envelope.
#[derive(Debug, Default)]
pub(crate) struct Attributes(Vec<(String, Bytes)>);

impl Attributes {
    /// Reads the attributes of a message. The SDK does not keep their order.
    pub(crate) fn of(message: Option<HashMap<String, MessageAttributeValue>>) -> Self {
        let mut sorted: Vec<_> = message.unwrap_or_default().into_iter().collect();
        sorted.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        let mut attributes = Self::default();
        for (name, value) in sorted {
            match (value.string_value, value.binary_value) {
                (Some(text), _) => attributes.add(name, &value.data_type, text.into()),
                (None, Some(bytes)) => attributes.0.push((name, bytes.into_inner().into())),
                (None, None) => {}
            }
        }
        attributes
    }

    /// Adds an attribute with this type. A binary value that comes as text is in base64, as SNS sends it.
    pub(crate) fn add(&mut self, name: String, data_type: &str, value: Bytes) {
        let value = match data_type {
            EMPTY_TYPE => Bytes::new(),
            _ if data_type.starts_with("Binary") => STANDARD.decode(&value).map_or(value, Into::into),
            _ => value,
        };
        self.0.push((name, value));
    }

    /// Adds attributes of text.
    pub(crate) fn extend<'a>(&mut self, more: impl IntoIterator<Item = (&'a str, String)>) {
        self.0.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    }

    /// Removes an attribute, and returns its value if that is text.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        String::from_utf8(self.0.remove(at).1.into()).ok()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    /// Returns the media type, whose name may be written in any case.
    pub(crate) fn content_type(&self) -> Option<String> {
        let (_, value) = self.0.iter().rfind(|(name, _)| name.eq_ignore_ascii_case("content-type"))?;
        std::str::from_utf8(value).ok().map(ToOwned::to_owned)
    }

    pub(crate) fn headers(self) -> Headers {
        self.0.into_iter().collect()
    }
}

/// Decodes a payload that was not allowed in a body.
///
/// # Errors
/// The text is not in this encoding, or the encoding is that of a later version.
pub(crate) fn decode(encoding: &str, payload: &Bytes) -> Result<Bytes, String> {
    match encoding {
        EMPTY => Ok(Bytes::new()),
        BASE64 => STANDARD.decode(payload).map(Into::into).map_err(|error| {
            format!("its attribute `{ENCODING}` says that the body is in base64, and it is not: {error}")
        }),
        _ => Err(format!(
            "its attribute `{ENCODING}` says that the body is in {encoding:?}, which this version cannot read"
        )),
    }
}
