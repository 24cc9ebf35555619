//! Codec preparation, which fetches what decoding needs.

use tokio::time::timeout;

use crate::routes::Route;
use crate::{Delivery, PrepareError, Store};

use super::pipeline::Pipeline;

/// The error of a codec that does not find what it has fetched.
pub(crate) const FORGOTTEN: &str = "the codec requested another preparation although the last one succeeded: `decode` must use the data that \
     `prepare` cached";

impl<S: Store> Pipeline<S> {
    /// Lets the codec prepare for a delivery, within the timeout. A codec that hangs is waiting for another system,
    /// which is not the fault of any message. Cancel safe.
    pub(crate) async fn prepare(&self, route: &Route<S>, delivery: &Delivery) -> Result<(), PrepareError> {
        let limit = self.settings.prepare_timeout;
        timeout(limit, route.handler.prepare_codec(delivery)).await.unwrap_or_else(|_| {
            Err(PrepareError::unavailable(format!(
                "it took longer than {limit:?}; `.prepare_timeout(..)` sets the limit"
            )))
        })
    }

    /// Logs a message whose codec could not prepare.
    pub(crate) fn warn_of_unprepared(&self, delivery: &Delivery, tries: usize, error: &str) {
        tracing::warn!(
            source = delivery.source(),
            message_id = delivery.message_id(),
            position = delivery.position(),
            tries,
            error,
            "the codec cannot fetch the data it needs to decode a message; the message is held and retried"
        );
    }
}
