//! The interface to codecs.

use crate::Delivery;

use super::{DecodeError, PrepareError};

/// Decodes a delivery into a message of type `M`.
///
/// Decoding is synchronous and happens before any transaction begins. A codec that needs external data, such as a
/// schema from a registry, caches it in memory. If [`decode`](Self::decode) does not find it in the cache, it returns
/// [`DecodeError::unprepared`]. The delivery then waits, without occupying a worker task, connection or transaction,
/// while [`prepare`](Self::prepare) fetches the data, and is decoded again. A codec that never returns this error, such
/// as [`Json`](crate::Json), has no overhead.
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
    /// Of the messages of a handler, one prepares at a time. The others that need a preparation wait for it, outside the
    /// worker's tasks, and are then decoded again. It must not block its thread, nor abort: a message is not charged for
    /// the end of a process that prepares for it. The future is dropped at the
    /// [timeout](crate::Worker::prepare_timeout), when the worker drains, and when the broker takes the delivery back.
    ///
    /// # Errors
    /// [`PrepareError`] tells whether the message or the service is at fault. Only the former makes a dead letter. The
    /// latter, like a call that times out, is retried with a growing delay, which is that of the handler, and does not count
    /// as an attempt. A panic is
    /// the message's fault.
    fn prepare(&self, delivery: &Delivery) -> impl Future<Output = Result<(), PrepareError>> + Send {
        let _ = delivery;
        std::future::ready(Ok(()))
    }
}
