//! The errors of codecs. A panic of a preparation is one of them.

use crate::BoxError;
use crate::caught::caught;

/// Why a codec did not decode a delivery.
///
/// Any error converts into this type with `?`, as does a text with `into`; it then means that the delivery can never be
/// decoded. This is why the type does not implement [`std::error::Error`].
///
/// ```
/// # use idem_core::{Codec, DecodeError, Delivery, Json};
/// # #[derive(serde::Deserialize)] struct Order { order_id: i64 }
/// /// JSON of the content type that this service agreed on, and nothing else.
/// struct Agreed;
///
/// impl Codec<Order> for Agreed {
///     fn decode(&self, delivery: &Delivery) -> Result<Order, DecodeError> {
///         match delivery.content_type() {
///             Some("application/json") => Ok(serde_json::from_slice(delivery.data())?),
///             other => Err(format!("the content type is {other:?}").into()),
///         }
///     }
/// }
///
/// assert!(matches!(Agreed.decode(&Delivery::new("orders", "{}")), Err(DecodeError::Undecodable(_))));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// It can never be decoded, and becomes a dead letter with reason `undecodable` and this error.
    Undecodable(BoxError),
    /// It can be decoded once [`Codec::prepare`](crate::Codec::prepare) has fetched the data that it needs.
    Unprepared,
}

impl DecodeError {
    /// The delivery can never be decoded.
    pub fn undecodable(error: impl Into<BoxError>) -> Self {
        Self::Undecodable(error.into())
    }

    /// The delivery can be decoded once [`Codec::prepare`](crate::Codec::prepare) has fetched the data that it needs.
    pub fn unprepared() -> Self {
        Self::Unprepared
    }
}

impl<E: Into<BoxError>> From<E> for DecodeError {
    fn from(error: E) -> Self {
        Self::undecodable(error)
    }
}

/// Why the data that a delivery needs to be decoded could not be fetched.
///
/// No error converts into this type with `?`: the codec has to decide for each failure whether it makes a dead letter.
///
/// ```
/// # use idem_core::PrepareError;
/// /// The answer of a schema registry that is not a schema.
/// fn failed(status: u16) -> PrepareError {
///     match status {
///         404 => PrepareError::undecodable("there is no such schema"),
///         other => PrepareError::unavailable(format!("the registry answered {other}")),
///     }
/// }
/// assert!(matches!(failed(404), PrepareError::Undecodable(_)));
/// assert!(matches!(failed(401), PrepareError::Unavailable(_)), "a wrong password is no fault of the message");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum PrepareError {
    /// The message is at fault, for example because it names a schema that does not exist. It can never be decoded, and
    /// becomes a dead letter with reason `undecodable` and this error.
    Undecodable(BoxError),
    /// The service is at fault: it is unavailable, or refuses every request. The message is held, unacked or in the
    /// inbox, and retried with a growing delay of up to a minute. This does not count as an attempt and never makes a
    /// dead letter.
    Unavailable(BoxError),
}

impl PrepareError {
    /// The message is at fault: it can never be decoded.
    pub fn undecodable(error: impl Into<BoxError>) -> Self {
        Self::Undecodable(error.into())
    }

    /// The service is at fault: retry later.
    pub fn unavailable(error: impl Into<BoxError>) -> Self {
        Self::Unavailable(error.into())
    }
}

/// Runs a preparation. A panic in it is the fault of its message; a panic while it is dropped is only logged.
pub(crate) async fn preparing(work: impl Future<Output = Result<(), PrepareError>> + Send) -> Result<(), PrepareError> {
    caught("the preparation of a codec", work).await.unwrap_or_else(|panic| {
        Err(PrepareError::undecodable(format!("the preparation of the codec panicked: {panic}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_the_fault_of_the_message() {
        let prepared = preparing(async { panic!("no such table") }).await;
        let Err(PrepareError::Undecodable(error)) = prepared else { panic!("{prepared:?}") };
        assert_eq!(error.to_string(), "the preparation of the codec panicked: no such table");
    }
}
