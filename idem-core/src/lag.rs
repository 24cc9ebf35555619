//! How many messages wait at the broker.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use crate::BoxError;

/// Asks how many messages are ready for one subscription: what a [`Source`](crate::Source) answers to
/// [`lag`](crate::Source::lag), and the worker publishes as the gauge `idem_source_lag`.
///
/// It is a handle of its own, so that it can be asked while [`next`](crate::Source::next) waits. Whether deliveries that are
/// handed out and unsettled are counted is the broker's way: RabbitMQ and NATS do not count them, Kafka does.
#[derive(Clone)]
pub struct Lag(Arc<dyn Fn() -> Asking + Send + Sync>);

/// One question under way.
type Asking = Pin<Box<dyn Future<Output = Result<Vec<(Arc<str>, u64)>, BoxError>> + Send>>;

impl Lag {
    /// A handle that asks by this function. It answers with a number for each queue, stream or topic of the subscription, by
    /// the name that its deliveries have as their [`source`](crate::Delivery::source). What is not known is left out.
    ///
    /// The future must not wait for `next`, nor `next` for it, and a failure of it must not end the subscription. It is
    /// dropped after 5 seconds without an answer.
    pub fn new<F, A>(ask: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Vec<(Arc<str>, u64)>, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(ask())))
    }

    /// Asks the broker. Cancel safe.
    ///
    /// # Errors
    /// The broker has not answered, or does not say: nothing else depends on it.
    pub async fn read(&self) -> Result<Vec<(Arc<str>, u64)>, BoxError> {
        (self.0)().await
    }
}

impl fmt::Debug for Lag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lag").finish_non_exhaustive()
    }
}
