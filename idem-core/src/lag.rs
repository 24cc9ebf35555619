//! The number of messages that wait at the broker.

use std::sync::Arc;

use crate::{BoxError, Callback};

/// A handle that reads how many messages are ready for one subscription. A [`Source`](crate::Source) returns it from
/// [`lag`](crate::Source::lag), and the worker publishes the numbers as the gauge `idem_source_lag`.
///
/// It is separate from the source, so that it can be read while [`next`](crate::Source::next) waits. Whether unsettled
/// deliveries are counted depends on the broker: RabbitMQ and NATS do not count them, Kafka does.
///
/// ```
/// # use idem_core::{BoxError, Lag};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// # async fn ready() -> Result<u64, BoxError> { Ok(42) }
/// let lag = Lag::new(|| async { Ok(vec![("orders".into(), ready().await?)]) });
/// assert_eq!(lag.read().await?, [("orders".into(), 42)]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Lag(Callback<Vec<(Arc<str>, u64)>>);

impl Lag {
    /// Creates a handle from this function. It returns a number for each queue, stream or topic of the subscription,
    /// with the name that its deliveries have as their [`source`](crate::Delivery::source). Unknown numbers are left
    /// out.
    ///
    /// The future must not wait for `next`, nor `next` for it, and its failure must not end the subscription. It is
    /// dropped after 5 seconds.
    pub fn new<F, A>(ask: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Vec<(Arc<str>, u64)>, BoxError>> + Send + 'static,
    {
        Self(Callback::new(ask))
    }

    /// Asks the broker. Cancel safe.
    ///
    /// # Errors
    /// The broker has not answered within 10 seconds, or does not report the number. Nothing else depends on it.
    pub async fn read(&self) -> Result<Vec<(Arc<str>, u64)>, BoxError> {
        self.0.call().await
    }
}
