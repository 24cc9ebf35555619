//! Decoding of deliveries into messages.

mod found;
#[cfg(feature = "protobuf")]
mod protobuf;

use serde::de::DeserializeOwned;

use crate::caught::caught;
use crate::{BoxError, Delivery};

use found::found;
pub(crate) use found::without_mark;
#[cfg(feature = "protobuf")]
pub use protobuf::Protobuf;

/// Decodes a delivery into a message of type `M`.
///
/// Decoding is synchronous and happens before any transaction begins. A codec that needs external data, such as a
/// schema from a registry, caches it in memory. If [`decode`](Self::decode) does not find it in the cache, it returns
/// [`DecodeError::unprepared`]. The delivery then waits, without occupying a worker task, connection or transaction,
/// while [`prepare`](Self::prepare) fetches the data, and is decoded again. A codec that never returns this error, such
/// as [`Json`], has no overhead.
///
/// Decoding must neither panic nor abort on any input. An abort ends the process before the attempt can be counted.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::RwLock;
///
/// use idem_core::{BoxError, Codec, DecodeError, Delivery, PrepareError};
/// # struct Schema;
/// # impl Schema { fn decode(&self, _: &[u8]) -> Result<String, BoxError> { Ok(String::new()) } }
/// # struct Registry;
/// # impl Registry { async fn fetch(&self, _: &str) -> Result<Option<Schema>, BoxError> { Ok(Some(Schema)) } }
///
/// struct WithSchemas {
///     registry: Registry,
///     known: RwLock<HashMap<String, Schema>>,
/// }
///
/// fn schema_of(delivery: &Delivery) -> Result<&str, BoxError> {
///     delivery.headers().get_str("schema").ok_or_else(|| "there is no header `schema`".into())
/// }
///
/// impl Codec<String> for WithSchemas {
///     fn decode(&self, delivery: &Delivery) -> Result<String, DecodeError> {
///         let known = self.known.read().map_err(|_| "the lock is poisoned")?;
///         let schema = known.get(schema_of(delivery)?).ok_or_else(DecodeError::unprepared)?;
///         Ok(schema.decode(delivery.data())?)
///     }
///
///     async fn prepare(&self, delivery: &Delivery) -> Result<(), PrepareError> {
///         let name = schema_of(delivery).map_err(PrepareError::undecodable)?;
///         let fetched = self.registry.fetch(name).await.map_err(PrepareError::unavailable)?;
///         let schema = fetched.ok_or_else(|| PrepareError::undecodable(format!("there is no schema {name:?}")))?;
///         self.known.write().map_err(|_| PrepareError::unavailable("the lock is poisoned"))?.insert(name.to_owned(), schema);
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` cannot decode the message `{M}`",
    note = "for JSON, the default, the message needs `#[derive(serde::Deserialize)]`",
    note = "for another format, give the worker a codec with `.codec(..)` before its handlers"
)]
pub trait Codec<M>: Send + Sync + 'static {
    /// Decodes [`Delivery::data`]: the payload, or the data of a CloudEvent. Headers, content type and all other facts
    /// of the delivery may determine how.
    ///
    /// # Errors
    /// An error converted by `?` means that the delivery can never be decoded: it becomes a dead letter with reason
    /// `undecodable`, kept whole, and the handler is not called. [`DecodeError::unprepared`] requests
    /// [`prepare`](Self::prepare).
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError>;

    /// Returns the message of a tombstone, a delivery without a payload. Called only for handlers that take tombstones,
    /// whose message type is an `Option`; it should return `None`.
    ///
    /// # Errors
    /// The same as those of [`decode`](Self::decode). With a codec that does not implement this method, a tombstone
    /// becomes a dead letter.
    fn tombstone(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        let _ = delivery;
        Err("the worker's codec does not say what a tombstone is: implement `Codec::tombstone`".into())
    }

    /// Fetches what decoding this delivery needs. Called only after [`decode`](Self::decode) has returned
    /// [`DecodeError::unprepared`]; does nothing by default.
    ///
    /// Of the messages of a handler, one prepares at a time. The others that need a preparation wait for it, outside
    /// the worker's tasks, and are then decoded again. It must not block its thread, nor abort: the end of a process
    /// during a preparation counts as no attempt. The future is dropped at the
    /// [timeout](crate::Worker::prepare_timeout), when the worker drains, and when the broker takes the delivery back.
    ///
    /// # Errors
    /// [`PrepareError`] says whether the message or the service is at fault. Only the former makes a dead letter. The
    /// latter, like a call that times out, is retried with a growing delay, which is that of the handler, and does not count
    /// as an attempt. A panic is
    /// the message's fault.
    fn prepare(&self, delivery: &Delivery) -> impl Future<Output = Result<(), PrepareError>> + Send {
        let _ = delivery;
        std::future::ready(Ok(()))
    }
}

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
    /// It can be decoded once [`Codec::prepare`] has fetched the data that it needs.
    Unprepared,
}

impl DecodeError {
    /// The delivery can be decoded once [`Codec::prepare`] has fetched the data that it needs.
    pub fn unprepared() -> Self {
        Self::Unprepared
    }
}

impl<E: Into<BoxError>> From<E> for DecodeError {
    fn from(error: E) -> Self {
        Self::Undecodable(error.into())
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
    /// The service is at fault: it is unavailable, or rejects every request. The message is parked, unacked or in the
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

    #[test]
    fn json_that_is_nested_ten_thousand_deep_is_an_error_and_no_overflow() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        let decoded: Result<serde_json::Value, _> = Json.decode(&Delivery::new("orders", deep));
        let Err(DecodeError::Undecodable(error)) = decoded else { panic!("{decoded:?}") };
        assert!(error.to_string().contains("recursion limit"));
    }
}
