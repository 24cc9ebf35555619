//! Preparation of codecs, for deliveries, inbox rows and external calls: it fetches what decoding needs. Which message of a
//! handler may prepare now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::routes::Route;
use crate::store::{HandlerId, Row};
use crate::{BoxError, Delivery, PrepareError, Store};

use super::pipeline::Pipeline;
use super::waits::{hold_wait, jittered, refused_wait};

/// The error of a codec that does not find what it has fetched.
const FORGOTTEN: &str = "the codec requested another preparation although the last one succeeded: `decode` must use the data that \
     `prepare` cached";

/// When a row is tried again whose codec forgets.
const FORGETFUL: Duration = Duration::from_secs(1);

/// Lets one message of each handler prepare at a time: a delivery, an inbox row or an external call. Until it has ended, and
/// after a failure until the next try, the others of that handler wait. What a registry that is away costs is then one try
/// after another, however many messages need it. Other handlers do not wait.
#[derive(Debug, Default)]
pub(crate) struct Preparations(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    handlers: HashMap<HandlerId, Turns>,
    /// The rows that have asked for a preparation: when, and whether it has succeeded since.
    rows: HashMap<i64, (Instant, bool)>,
}

#[derive(Debug, Default)]
struct Turns {
    is_taken: bool,
    /// How many preparations in a row have failed.
    failed: usize,
    not_before: Option<Instant>,
}

/// The turn of one message, until this is dropped.
pub(crate) struct Preparing {
    of: Arc<Preparations>,
    handler: HandlerId,
}

/// For how long a row is remembered that needs a preparation: for longer than any delay.
const WANTED: Duration = Duration::from_secs(600);

/// A row that asks again this soon after a preparation has succeeded has a codec that forgets.
const FORGETS: Duration = Duration::from_secs(10);

impl Preparations {
    /// Returns the turn to prepare for a message of this handler, or the time after which it may be asked for again.
    pub(crate) fn turn(self: &Arc<Self>, handler: HandlerId) -> Result<Preparing, Duration> {
        let mut state = self.0.lock();
        let turns = state.handlers.entry(handler).or_default();
        let left = turns.not_before.map(|time| time.saturating_duration_since(Instant::now())).unwrap_or_default();
        if !left.is_zero() {
            return Err(left);
        }
        if turns.is_taken {
            return Err(hold_wait(turns.failed));
        }
        turns.is_taken = true;
        Ok(Preparing { of: self.clone(), handler })
    }

    /// Remembers that a row has asked for a preparation. Returns whether one has succeeded for it just before.
    pub(crate) fn asked_by(&self, id: i64) -> bool {
        let (mut state, now) = (self.0.lock(), Instant::now());
        state.rows.retain(|_, (at, done)| now.duration_since(*at) < if *done { FORGETS } else { WANTED });
        state.rows.insert(id, (now, false)).is_some_and(|(_, done)| done)
    }
}

impl Preparing {
    /// Records a success. `row`: the row for which it was.
    fn succeeded(&self, row: Option<i64>) {
        let mut state = self.of.0.lock();
        state.handlers.remove(&self.handler);
        state.rows.extend(row.map(|id| (id, (Instant::now(), true))));
    }

    /// Records a failure. Returns how many there were in a row, and the time after which this message may try again: a bit
    /// later than the others of its handler, so that they have their turns as well.
    fn failed(&self) -> (usize, Duration) {
        let mut state = self.of.0.lock();
        let turns = state.handlers.entry(self.handler).or_default();
        let wait = refused_wait(turns.failed);
        turns.failed += 1;
        turns.not_before = Some(Instant::now() + wait);
        (turns.failed, wait.mul_f64(1.1))
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        if let Some(turns) = self.of.0.lock().handlers.get_mut(&self.handler) {
            turns.is_taken = false;
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Lets the codec prepare for a delivery, within the timeout, and without a connection or a lock. A codec that hangs is
    /// waiting for another system, which is not the fault of any message. `turn`: its turn, or the time after which it may ask
    /// for it again. `row`: the row of the delivery, and how long it is still taken if that is limited. Cancel safe.
    ///
    /// Returns when the message is tried again, uncharged: at once if the codec is prepared, and later if it is not its turn, or
    /// if what it needs is unavailable.
    ///
    /// # Errors
    /// The codec can never decode the message.
    pub(crate) async fn prepare(
        &self,
        turn: Result<Preparing, Duration>,
        route: &Route<S>,
        delivery: &Delivery,
        row: Option<(i64, Option<Duration>)>,
    ) -> Result<Duration, String> {
        let turn = match turn {
            Ok(turn) => turn,
            Err(delay) => return Ok(delay),
        };
        let most = self.settings.prepare_timeout;
        let limit = row.and_then(|(_, left)| left).map_or(most, |left| left.min(most));
        let error = match timeout(limit, route.handler.prepare_codec(delivery)).await {
            Ok(Ok(())) => {
                turn.succeeded(row.map(|(id, _)| id));
                return Ok(Duration::ZERO);
            }
            Ok(Err(PrepareError::Undecodable(error))) => {
                turn.succeeded(row.map(|(id, _)| id));
                return Err(crate::error::text(error.as_ref()));
            }
            Ok(Err(PrepareError::Unavailable(error))) => error,
            Err(_) if limit < most => BoxError::from("it takes longer than the lease of a call"),
            Err(_) => format!("it took longer than {limit:?}; `.prepare_timeout(..)` sets the limit").into(),
        };
        let (tries, wait) = turn.failed();
        warn_of_unprepared(delivery, tries, &crate::error::text(error.as_ref()));
        Ok(wait)
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
            Ok(delay) if delay.is_zero() => None,
            // If another message has the turn, what it fetches may be all that this one needs.
            Ok(delay) => return tokio::time::sleep(delay).await,
            Err(error) => Some(error),
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

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: HandlerId = HandlerId(1);
    const REFUNDS: HandlerId = HandlerId(2);

    #[tokio::test(start_paused = true)]
    async fn one_message_of_a_handler_prepares_at_a_time() {
        let preparations = Arc::<Preparations>::default();
        let first = preparations.turn(ORDERS).ok().unwrap();
        assert!(preparations.turn(ORDERS).is_err() && preparations.turn(REFUNDS).is_ok());
        drop(first);
        assert!(preparations.turn(ORDERS).is_ok(), "a preparation that was dropped is none");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_failure_another_message_has_the_next_turn() {
        let preparations = Arc::<Preparations>::default();
        let mut waits = Vec::new();
        for tries in 1..=9 {
            let turn = preparations.turn(ORDERS).ok().unwrap();
            let (failed, own) = turn.failed();
            drop(turn);
            let others = preparations.turn(ORDERS).err().unwrap();
            assert!(failed == tries && others < own, "{others:?} {own:?}");
            tokio::time::advance(others).await;
            waits.push(others);
        }
        assert!(waits[0] < Duration::from_secs(1) && waits[8] > Duration::from_secs(10), "{waits:?}");
        preparations.turn(ORDERS).ok().unwrap().succeeded(None);
        assert!(preparations.turn(ORDERS).is_ok(), "the others go on at once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_asks_again_at_once_has_a_codec_that_forgets() {
        let preparations = Arc::<Preparations>::default();
        assert!(!preparations.asked_by(7));
        preparations.turn(ORDERS).ok().unwrap().succeeded(Some(7));
        assert!(preparations.asked_by(7) && !preparations.asked_by(7));
        preparations.turn(ORDERS).ok().unwrap().succeeded(Some(7));
        tokio::time::advance(FORGETS).await;
        assert!(!preparations.asked_by(7), "it was long ago");
    }
}
