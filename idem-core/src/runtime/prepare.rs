//! The preparation of codecs, for deliveries, inbox rows and external calls, which fetches what decoding needs, and which message of
//! a handler may prepare now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout};

use crate::caught::dropped;
use crate::registry::NoJob;
use crate::routes::Route;
use crate::store::{HandlerId, Row};
use crate::{BoxError, Delivery, Engine, PrepareError};

use super::persist::{park_delay, refused_wait};
use super::pipeline::Pipeline;

/// The error of a codec that does not find what it has fetched.
const FORGOTTEN: &str = "the codec requested another preparation although the last one succeeded: `decode` must use the data that \
     `prepare` cached";

/// Lets one message of each handler prepare at a time: a delivery, an inbox row or an external call. Until it has ended, and
/// after a failure until the next try, the others of that handler wait. What a registry that is away costs is then one try
/// after another, however many messages need it. Other handlers do not wait.
#[derive(Debug, Default)]
pub(crate) struct Preparations(Mutex<HashMap<HandlerId, Turns>>);

/// What is known of the preparations of a handler.
#[derive(Debug, Default)]
struct Turns {
    /// Locked while a message prepares.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// How many in a row have failed.
    failed: usize,
    not_before: Option<Instant>,
}

/// The turn of one message, until this is dropped.
pub(crate) struct Preparing {
    handler: HandlerId,
    _turn: OwnedMutexGuard<()>,
}

impl Preparations {
    /// Returns the turn to prepare for a message of this handler, or the time after which it may be asked for again.
    pub(crate) fn turn(&self, handler: HandlerId) -> Result<Preparing, Duration> {
        let mut handlers = self.0.lock();
        let turns = handlers.entry(handler).or_default();
        let left = turns.not_before.map(|time| time.saturating_duration_since(Instant::now())).unwrap_or_default();
        if !left.is_zero() {
            return Err(left);
        }
        // Longer after failures: while a registry hangs, each row that asks is taken from the database and given back.
        let turn = turns.turn.clone().try_lock_owned().map_err(|_| park_delay(turns.failed))?;
        Ok(Preparing { handler, _turn: turn })
    }

    /// Records a success.
    fn succeeded(&self, Preparing { handler, .. }: &Preparing) {
        let mut handlers = self.0.lock();
        let turns = handlers.entry(*handler).or_default();
        (turns.failed, turns.not_before) = (0, None);
    }

    /// Records a failure. Returns how many there were in a row, and the time after which this message may try again: a bit
    /// later than the others of its handler, so that they have their turns as well.
    fn failed(&self, Preparing { handler, .. }: &Preparing) -> (usize, Duration) {
        let mut handlers = self.0.lock();
        let turns = handlers.entry(*handler).or_default();
        let wait = refused_wait(turns.failed);
        turns.failed += 1;
        turns.not_before = Some(Instant::now() + wait);
        (turns.failed, wait.mul_f64(1.1))
    }
}

impl<S: Engine> Pipeline<S> {
    /// Returns the first of these handlers whose codec has to prepare for the delivery. This decodes beside no orphaned row that has
    /// the process to itself; the caller must not hold that permit, or an orphaned row that waits would block both.
    pub(crate) async fn unprepared<'a>(&self, routes: &[&'a Route<S>], delivery: &Delivery) -> Option<&'a Route<S>> {
        let _beside = self.isolation_lock.direct().await;
        let is_unprepared = |route: &&&'a Route<S>| {
            let decoded = self.decode_for(route, delivery);
            let is_unprepared = matches!(decoded, Err(NoJob::Unprepared));
            dropped("a message", decoded);
            is_unprepared
        };
        routes.iter().find(is_unprepared).copied()
    }

    /// Lets the codec prepare for a delivery, within the timeout, and without a connection or a lock. A codec that hangs is
    /// waiting for another system, which is not the fault of any message. `turn`: its turn, or the time after which it may ask
    /// for it again. `left`: for how long its lease still lasts, if that is limited. Cancel safe.
    ///
    /// Returns when the message is tried again, with no attempt recorded: at once if the codec is prepared, and later if it is
    /// not its turn, or if what it needs is unavailable, or if the codec has not kept it.
    ///
    /// # Errors
    /// The codec can never decode the message.
    pub(crate) async fn prepare(
        &self,
        turn: Result<Preparing, Duration>,
        route: &Route<S>,
        delivery: &Delivery,
        left: Option<Duration>,
    ) -> Result<Duration, String> {
        let turn = match turn {
            Ok(turn) => turn,
            Err(delay) => return Ok(delay),
        };
        let most = self.settings.prepare_timeout;
        let limit = left.map_or(most, |left| left.min(most));
        let error = match timeout(limit, route.handler.prepare_codec(delivery)).await {
            Ok(Ok(())) => {
                if self.unprepared(&[route], delivery).await.is_none() {
                    self.preparations.succeeded(&turn);
                    return Ok(Duration::ZERO);
                }
                BoxError::from(FORGOTTEN)
            }
            Ok(Err(PrepareError::Undecodable(error))) => {
                self.preparations.succeeded(&turn);
                return Err(crate::error::text(error.as_ref()));
            }
            Ok(Err(PrepareError::Unavailable(error))) => error,
            Err(_) if limit < most => BoxError::from("it takes longer than the lease of a call"),
            Err(_) => format!("it took longer than {limit:?}; `.prepare_timeout(..)` sets the limit").into(),
        };
        let (tries, wait) = self.preparations.failed(&turn);
        tracing::warn!(
            source = delivery.source(),
            message_id = delivery.message_id(),
            position = delivery.position(),
            tries,
            error = crate::error::text(error.as_ref()),
            "the codec cannot fetch the data it needs to decode a message; the message is parked and retried"
        );
        Ok(wait)
    }

    /// Waits until the codec is prepared for this delivery or has shown that it can never decode it, or until it may be tried
    /// again. The delivery is unacked and in its place, with no attempt recorded meanwhile, since without a decoded message there
    /// is no key to store it under.
    ///
    /// Cancel safe: a dropped preparation starts again when the delivery comes again.
    pub(crate) async fn prepare_delivery(&self, delivery: &mut Delivery) {
        let routes: Vec<_> = self.routes.routes_for(delivery).collect();
        let Some(route) = self.unprepared(&routes, delivery).await else { return };
        let ended = delivery.rare().preparations;
        if ended > 0 {
            // Codecs that soon forget, or make each other forget, must not ask without end.
            tokio::time::sleep(refused_wait(ended - 1)).await;
        }
        let undecodable = match self.prepare(self.preparations.turn(route.id), route, delivery, None).await {
            Ok(delay) if delay.is_zero() => None,
            // If another message has the turn, what it fetches may be all that this one needs.
            Ok(delay) => return tokio::time::sleep(delay).await,
            Err(error) => Some(error),
        };
        let rare = delivery.rare_mut();
        rare.preparations += 1;
        rare.undecodable.extend(undecodable.map(|why| (route.id, Arc::from(why))));
    }

    /// Returns the turn to prepare for a row, or the time after which it is tried again: another message of its handler prepares,
    /// or has failed to.
    pub(crate) fn turn_to_prepare(&self, row: &Row) -> Result<Preparing, Duration> {
        self.routes.meters(row.identity.handler).parked.increment(1);
        self.preparations.turn(row.identity.handler)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: HandlerId = HandlerId(1);
    const REFUNDS: HandlerId = HandlerId(2);

    #[tokio::test(start_paused = true)]
    async fn one_message_of_a_handler_prepares_at_a_time() {
        let preparations = Preparations::default();
        let first = preparations.turn(ORDERS).ok().unwrap();
        assert!(preparations.turn(ORDERS).is_err() && preparations.turn(REFUNDS).is_ok());
        drop(first);
        assert!(preparations.turn(ORDERS).is_ok(), "a preparation that was dropped is none");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_another_message_has_the_next_turn() {
        let preparations = Preparations::default();
        let mut waits = Vec::new();
        for tries in 1..=9 {
            let turn = preparations.turn(ORDERS).ok().unwrap();
            let (failed, own) = preparations.failed(&turn);
            drop(turn);
            let others = preparations.turn(ORDERS).err().unwrap();
            assert!(failed == tries && others < own, "{others:?} {own:?}");
            tokio::time::advance(others).await;
            waits.push(others);
        }
        assert!(waits[0] < Duration::from_secs(1) && waits[8] > Duration::from_secs(10), "{waits:?}");
        // While a registry hangs, the others ask more seldom than while it answers.
        let turn = preparations.turn(ORDERS).ok().unwrap();
        assert!(preparations.turn(ORDERS).err().unwrap() >= Duration::from_secs(1));
        preparations.succeeded(&turn);
        assert!(preparations.turn(ORDERS).err().unwrap() <= Duration::from_millis(100));
        drop(turn);
        assert!(preparations.turn(ORDERS).is_ok(), "the others go on at once");
    }
}
