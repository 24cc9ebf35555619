//! Callbacks: those of the application, which return credentials, and that of an adapter, which reads the lag of its source.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::BoxError;

/// The time limit of a call.
const LIMIT: Duration = Duration::from_secs(10);

/// A callback of the application that returns the present credentials, for an adapter that calls it for each connection.
///
/// ```
/// # use idem_core::{BoxError, Callback};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let token = Callback::new(|| async { Ok("secret".to_owned()) });
/// assert_eq!(token.call().await?, "secret");
/// # Ok(()) }
/// ```
pub struct Callback<T>(Arc<dyn Fn() -> Called<T> + Send + Sync>);

type Called<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl<T> Callback<T> {
    /// Wraps a function.
    pub fn new<F, A>(callback: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<T, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(callback())))
    }

    /// Calls the function. Cancel safe as far as it is.
    ///
    /// # Errors
    /// The callback's own, or that it has not answered within 10 seconds.
    pub async fn call(&self) -> Result<T, BoxError> {
        match timeout(LIMIT, (self.0)()).await {
            Ok(called) => called,
            Err(_) => Err(format!("it has not answered within {} seconds", LIMIT.as_secs()).into()),
        }
    }
}

/// Reads how many messages are ready for one subscription: a number for each queue, stream or topic, with the name that its
/// deliveries have as their [`source`](crate::Delivery::source). Unknown numbers are left out. A [`Source`](crate::Source) returns
/// it from [`lag`](crate::Source::lag), and the worker publishes the numbers as the gauge `idem_source_lag`.
///
/// It is separate from the source, so that it can be called while [`next`](crate::Source::next) waits: it must not wait for that,
/// nor that for it, and its failure must not end the subscription. The worker drops it after 5 seconds. Whether unsettled
/// deliveries are counted depends on the broker: RabbitMQ, NATS and SQS do not count them, Kafka does.
///
/// ```
/// # use idem_core::{BoxError, Lag};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// # async fn ready() -> Result<u64, BoxError> { Ok(42) }
/// let lag = Lag::new(|| async { Ok(vec![("orders".into(), ready().await?)]) });
/// assert_eq!(lag.call().await?, [("orders".into(), 42)]);
/// # Ok(()) }
/// ```
pub type Lag = Callback<Vec<(Arc<str>, u64)>>;

impl<T> Clone for Callback<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Callback<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_callback_that_does_not_answer_is_given_up() {
        let callback = Callback::<String>::new(std::future::pending);
        let error = callback.call().await.unwrap_err().to_string();
        assert!(error.contains("within 10 seconds"), "{error}");
    }
}
