//! JSON.

use serde::de::DeserializeOwned;

use super::found::{found, without_mark};
use super::{Codec, DecodeError};
use crate::Delivery;

/// JSON, the default codec, implemented with serde_json, which limits nesting to 128 levels. A byte order mark in front of
/// it is skipped. The error of a payload that is none says what it looks like, such as gzip or an envelope.
///
/// ```
/// # use idem_core::{Codec, DecodeError, Delivery, Json};
/// #[derive(serde::Deserialize)]
/// struct OrderPaid { order_id: i64 }
///
/// let paid: OrderPaid = Json.decode(&Delivery::new("orders", r#"{"order_id": 7}"#))?;
/// assert_eq!(paid.order_id, 7);
/// // A tombstone is `None` of a handler that takes an `Option`.
/// let deleted: Option<OrderPaid> = Json.tombstone(&Delivery::new("orders", "").with_tombstone(true))?;
/// assert!(deleted.is_none());
/// # Ok::<(), DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Json;

#[diagnostic::do_not_recommend]
impl<M: DeserializeOwned> Codec<M> for Json {
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        serde_json::from_slice(without_mark(delivery.data())).map_err(|error| match found(delivery, "json") {
            Some(found) => format!("{error}: {found}").into(),
            None => error.into(),
        })
    }

    /// Decoded from `null`.
    fn tombstone(&self, _: &Delivery) -> Result<M, DecodeError> {
        serde_json::from_slice(b"null").map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_that_is_nested_ten_thousand_deep_is_an_error_and_no_overflow() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let decoded: Result<serde_json::Value, _> = Json.decode(&Delivery::new("orders", deep));
        let Err(DecodeError::Undecodable(error)) = decoded else { panic!("{decoded:?}") };
        assert!(error.to_string().contains("recursion limit"));
    }
}
