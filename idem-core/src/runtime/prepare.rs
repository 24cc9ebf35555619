//! Preparation of codecs, for deliveries, inbox rows and external calls: it fetches what decoding needs.

use std::time::Duration;

use tokio::time::timeout;

use crate::routes::Route;
use crate::run::Failure;
use crate::store::Row;
use crate::{BoxError, Delivery, PrepareError, Reason, Store};

use super::ended::{Ended, Wait};
use super::pipeline::Pipeline;
use super::preparations::Preparing;
use super::waits::{jittered, refused_wait};

/// The error of a codec that does not find what it has fetched.
const FORGOTTEN: &str = "the codec requested another preparation although the last one succeeded: `decode` must use the data that \
     `prepare` cached";

/// When a row is tried again whose codec forgets.
const FORGETFUL: Duration = Duration::from_secs(1);

impl<S: Store> Pipeline<S> {
    /// Lets the codec prepare for a delivery, within the timeout, and without a connection or a lock. A codec that hangs is
    /// waiting for another system, which is not the fault of any message. `turn`: its turn, or the time after which it may ask
    /// for it again. `row`: the row of the delivery, and how long it is still taken if that is limited. Cancel safe.
    ///
    /// # Errors
    /// `Failed`: the codec can never decode the message. `Park`, always with a time: it is not its turn, or what it needs is
    /// unavailable; the message is tried again after that time, uncharged.
    pub(crate) async fn prepare(
        &self,
        turn: Result<Preparing, Duration>,
        route: &Route<S>,
        delivery: &Delivery,
        row: Option<(i64, Option<Duration>)>,
    ) -> Result<(), Ended> {
        let turn = turn.map_err(|delay| Ended::Park(Wait::After(delay)))?;
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
        Err(Ended::Park(Wait::After(wait)))
    }

    /// Waits until the codec is prepared for this delivery or has shown that it can never decode it, or until it may be tried
    /// again. The delivery is unacked, uncharged and in its place meanwhile, since without a decoded message there is no key to
    /// store it under.
    ///
    /// Cancel safe: a dropped preparation starts again when the delivery comes again.
    pub(crate) async fn prepare_delivery(&self, delivery: &mut Delivery) {
        let takers: Vec<_> = self.routes.takers(delivery).collect();
        let Some(route) = self.unprepared(&takers, delivery).await else { return };
        let preparation = &delivery.rare().preparation;
        let tries = preparation.tries();
        if tries > 0 {
            // Codecs that forget, or make each other forget, must not ask without end.
            if preparation.was_for(route.id) {
                warn_of_unprepared(delivery, tries, FORGOTTEN);
            }
            tokio::time::sleep(refused_wait(tries - 1)).await;
        }
        let undecodable = match self.prepare(self.preparations.turn(route.id), route, delivery, None).await {
            Err(Ended::Failed(failure)) => Some(failure.error),
            // If another message has the turn, what it fetches may be all that this one needs.
            Err(Ended::Park(Wait::After(delay))) => return tokio::time::sleep(delay).await,
            _ => None,
        };
        delivery.rare_mut().preparation.ended(route.id, tries + 1, undecodable);
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
fn warn_of_unprepared(delivery: &Delivery, tries: usize, error: &str) {
    tracing::warn!(
        source = delivery.source(),
        message_id = delivery.message_id(),
        position = delivery.position(),
        tries,
        error,
        "the codec cannot fetch the data it needs to decode a message; the message is held and retried"
    );
}
