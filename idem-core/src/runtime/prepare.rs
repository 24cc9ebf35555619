//! Codec preparation, which fetches what decoding needs.

use std::time::Duration;

use tokio::time::timeout;

use crate::execute::Failure;
use crate::routes::Route;
use crate::store::Row;
use crate::{BoxError, Delivery, PrepareError, Reason, Store};

use super::ended::{Ended, Turn};
use super::pipeline::Pipeline;
use super::preparations::Preparing;
use super::waits::jittered;

/// The error of a codec that does not find what it has fetched.
pub(crate) const FORGOTTEN: &str = "the codec requested another preparation although the last one succeeded: `decode` must use the data that \
     `prepare` cached";

/// When a row is tried again whose codec forgets.
const FORGETFUL: Duration = Duration::from_secs(1);

impl<S: Store> Pipeline<S> {
    /// Lets the codec prepare for a delivery whose turn it is, within the timeout, and without a connection or a lock. A codec
    /// that hangs is waiting for another system, which is not the fault of any message. `row`: the row of the delivery, and how
    /// long it is still taken if that is limited. Cancel safe.
    ///
    /// # Errors
    /// `Failed`: the codec can never decode the message. `Park`: what it needs is unavailable; the message is tried again after
    /// this time, uncharged.
    pub(crate) async fn prepare(
        &self,
        turn: Preparing,
        route: &Route<S>,
        delivery: &Delivery,
        row: Option<(i64, Option<Duration>)>,
    ) -> Result<(), Ended> {
        let most = self.settings.prepare_timeout;
        let limit = row.and_then(|(_, left)| left).map_or(most, |left| left.min(most));
        let error = match timeout(limit, route.handler.prepare_codec(delivery)).await {
            Ok(Ok(())) => {
                turn.succeeded(row.map(|(id, _)| id));
                return Ok(());
            }
            Ok(Err(PrepareError::Undecodable(error))) => {
                turn.succeeded(row.map(|(id, _)| id));
                let error = crate::error::text(error.as_ref());
                return Err(Ended::Failed(Failure::new(Err(Reason::Undecodable), error)));
            }
            Ok(Err(PrepareError::Unavailable(error))) => error,
            Err(_) if limit < most => BoxError::from("it takes longer than the lease of a call"),
            Err(_) => format!("it took longer than {limit:?}; `.prepare_timeout(..)` sets the limit").into(),
        };
        let (tries, wait) = turn.failed();
        warn_of_unprepared(delivery, tries, &crate::error::text(error.as_ref()));
        Err(Ended::Park(Turn::After(wait)))
    }

    /// Returns the turn to prepare for a row, or the time after which it is tried again: another message of its handler prepares
    /// or has failed to, or its own codec has prepared just now and has forgotten the result.
    pub(crate) fn turn_to_prepare(&self, row: &Row) -> Result<Preparing, Duration> {
        self.routes.meters(row.identity.handler).held.increment(1);
        if self.preparations.asked_by(row.id) {
            warn_of_unprepared(&row.delivery, 1, FORGOTTEN);
            return Err(jittered(FORGETFUL));
        }
        self.preparations.turn(row.identity.handler)
    }
}

/// Logs a message whose codec could not prepare.
pub(crate) fn warn_of_unprepared(delivery: &Delivery, tries: usize, error: &str) {
    tracing::warn!(
        source = delivery.source(),
        message_id = delivery.message_id(),
        position = delivery.position(),
        tries,
        error,
        "the codec cannot fetch the data it needs to decode a message; the message is held and retried"
    );
}
