//! Decoding: bytes in, message out.

use serde::de::DeserializeOwned;

use crate::BoxError;

/// Turns a payload, or the data of a CloudEvent, into a message of type `M`.
///
/// An error means that the payload can never be decoded: the delivery becomes a dead letter with reason `undecodable`,
/// kept whole, and the handler is not called. Decoding must neither panic nor abort on any input; an abort takes the
/// process with it before anything could be counted.
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` cannot decode the message `{M}`",
    note = "for JSON, the default, the message needs `#[derive(serde::Deserialize)]`",
    note = "for another format, give the worker a codec with `.codec(..)` before its handlers"
)]
pub trait Codec<M>: Send + Sync + 'static {
    /// Decodes one payload.
    fn decode(&self, payload: &[u8]) -> Result<M, BoxError>;

    /// The message of a tombstone, a delivery without a payload at all. Asked only for handlers that take them, whose
    /// message is an `Option`: it should be `None`.
    ///
    /// An error, as of a codec that does not say, makes the tombstone a dead letter with reason `undecodable`.
    fn tombstone(&self) -> Result<M, BoxError> {
        Err("the worker's codec does not say what a tombstone is: implement `Codec::tombstone`".into())
    }
}

/// JSON by serde, the default codec. Nesting is limited to 128 levels by serde_json.
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

#[diagnostic::do_not_recommend]
impl<M: DeserializeOwned> Codec<M> for Json {
    fn decode(&self, payload: &[u8]) -> Result<M, BoxError> {
        serde_json::from_slice(payload).map_err(Into::into)
    }

    /// As `null`.
    fn tombstone(&self) -> Result<M, BoxError> {
        self.decode(b"null")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_is_nested_ten_thousand_deep_is_an_error_and_no_overflow() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let decoded: Result<serde_json::Value, _> = Json.decode(deep.as_bytes());
        assert!(decoded.unwrap_err().to_string().contains("recursion limit"));
    }
}
