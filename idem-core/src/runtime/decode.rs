//! The checks of a delivery before any query: limits, handler, message, key, fingerprint. The recognition of CloudEvents, and
//! the second decode before a message runs again.
//!
//! Also here: the preparation of codecs, for deliveries, inbox rows and external calls, which fetches what decoding needs, and
//! which message of a handler may prepare now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tracing::Span;

use crate::caught::dropped;
use crate::delivery::KeptCall;
use crate::registry::{NoJob, Undeliverable};
use crate::routes::Route;
use crate::run::Work;
use crate::store::{HandlerId, Identity, Row};
use crate::{BoxError, Delivery, Key, PrepareError, Reason, Store, telemetry};

use super::persist::{hold_wait, refused_wait};
use super::pipeline::Pipeline;

impl<S: Store> Pipeline<S> {
    /// Checks the limits, decodes the message and computes the key: everything that can reject a delivery before a
    /// transaction starts. The caller has asked whether [several](crate::routes::Routes::are_several) handlers take the delivery,
    /// which then has to be stored for each of them: only the first one would be found here, and the others would miss it.
    pub(crate) fn decode<'a>(&'a self, delivery: &'a Delivery) -> Result<Work<'a, S>, NoJob> {
        debug_assert!(!self.routes.are_several(delivery), "it is for several handlers");
        self.limit(delivery)?;
        self.decode_for(self.routes.find(delivery)?, delivery)
    }

    /// Decodes the message and computes the key for this handler.
    pub(crate) fn decode_for<'a>(&self, route: &'a Route<S>, delivery: &'a Delivery) -> Result<Work<'a, S>, NoJob> {
        if let Some((_, why)) = delivery.rare().undecodable.iter().find(|(id, _)| *id == route.id) {
            return Err(Undeliverable::new(Reason::Undecodable, why).into());
        }
        let mut key = Key::empty();
        let job = route.handler.decode(delivery, &mut key)?;
        if telemetry::is_heard() {
            let span = Span::current();
            span.record("idem.handler", route.handler.facts().name);
            span.record("idem.key", tracing::field::display(&key));
        }
        let identity = Identity { handler: route.id, key, fingerprint: route.handler.fingerprint(delivery)? };
        Ok(Work::new(route, identity, delivery, job))
    }

    /// Parses a delivery as a CloudEvent, if enabled. This happens when it is received, and again when its row is taken
    /// from the inbox, which stores it unchanged.
    pub(crate) fn recognize(&self, delivery: &mut Delivery) {
        if self.settings.cloud_events && delivery.payload().len() <= self.settings.max_payload {
            let event = crate::cloud_event::read(delivery);
            delivery.set_rare(|rare| &mut rare.cloud_event, event);
        }
    }

    /// Returns the first of these handlers, which take the delivery, whose codec has to prepare for it.
    pub(crate) async fn unprepared<'a>(&self, takers: &[&'a Route<S>], delivery: &Delivery) -> Option<&'a Route<S>> {
        for route in takers {
            if self.is_unprepared(route, delivery).await {
                return Some(route);
            }
        }
        None
    }

    /// Returns whether the codec of this handler has to prepare for the delivery. This decodes beside no orphaned row that has the
    /// process to itself; the caller must not hold that permit, or an orphaned row that waits would block both.
    pub(crate) async fn is_unprepared(&self, route: &Route<S>, delivery: &Delivery) -> bool {
        let _beside = self.isolation_lock.direct().await;
        let decoded = self.decode_for(route, delivery);
        let is_unprepared = matches!(decoded, Err(NoJob::Unprepared));
        dropped("a message", decoded);
        is_unprepared
    }

    /// Completes the delivery of a row that was taken: recognizes a CloudEvent, and adds what the row has kept of its external
    /// call.
    pub(crate) fn complete(&self, row: &mut Row) {
        self.recognize(&mut row.delivery);
        let Row { answer, call_name, called_at, .. } = &*row;
        let (answer, name, called_at) = (answer.clone(), call_name.clone(), *called_at);
        let call = row.provider_key.map(|provider_key| Arc::new(KeptCall { provider_key, answer, name, called_at }));
        row.delivery.set_rare(|rare| &mut rare.call, call);
    }

    /// Checks whether the delivery can be accepted at all.
    pub(crate) fn limit(&self, delivery: &Delivery) -> Result<(), Undeliverable> {
        if let Some(why) = delivery.unrepresentable() {
            return Err(Undeliverable::new(Reason::Unrepresentable, why));
        }
        let (size, limit) = (delivery.payload().len(), self.settings.max_payload);
        if size > limit {
            let text = format!("the payload has {size} bytes, and the limit is {limit}: raise `.max_payload(..)`");
            return Err(Undeliverable::new(Reason::TooLarge, text));
        }
        if let Some(header) = self.routes.ambiguous(delivery) {
            let text =
                format!("it has several headers `{header}`, with different values, so its event type is not known");
            return Err(Undeliverable::new(Reason::Undecodable, text));
        }
        if let Some(Err(why)) = &delivery.rare().cloud_event {
            return Err(Undeliverable::new(Reason::Undecodable, why));
        }
        Ok(())
    }

    /// Decodes the message of a work, whose key is known: that of a row, or one that a transaction has taken.
    pub(crate) fn decode_again(&self, work: &mut Work<'_, S>) -> Result<(), NoJob> {
        self.limit(work.delivery)?;
        work.job = Some(work.route.handler.decode(work.delivery, &mut work.identity.key.clone())?);
        Ok(())
    }
}

/// The error of a codec that does not find what it has fetched.
const FORGOTTEN: &str = "the codec requested another preparation although the last one succeeded: `decode` must use the data that \
     `prepare` cached";

/// Lets one message of each handler prepare at a time: a delivery, an inbox row or an external call. Until it has ended, and
/// after a failure until the next try, the others of that handler wait. What a registry that is away costs is then one try
/// after another, however many messages need it. Other handlers do not wait.
#[derive(Debug, Default)]
pub(crate) struct Preparations(Mutex<HashMap<HandlerId, Turns>>);

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

impl Preparations {
    /// Returns the turn to prepare for a message of this handler, or the time after which it may be asked for again.
    pub(crate) fn turn(self: &Arc<Self>, handler: HandlerId) -> Result<Preparing, Duration> {
        let mut handlers = self.0.lock();
        let turns = handlers.entry(handler).or_default();
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
}

impl Preparing {
    /// Records a success.
    fn succeeded(&self) {
        self.of.0.lock().remove(&self.handler);
    }

    /// Records a failure. Returns how many there were in a row, and the time after which this message may try again: a bit
    /// later than the others of its handler, so that they have their turns as well.
    fn failed(&self) -> (usize, Duration) {
        let mut handlers = self.of.0.lock();
        let turns = handlers.entry(self.handler).or_default();
        let wait = refused_wait(turns.failed);
        turns.failed += 1;
        turns.not_before = Some(Instant::now() + wait);
        (turns.failed, wait.mul_f64(1.1))
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        if let Some(turns) = self.of.0.lock().get_mut(&self.handler) {
            turns.is_taken = false;
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Lets the codec prepare for a delivery, within the timeout, and without a connection or a lock. A codec that hangs is
    /// waiting for another system, which is not the fault of any message. `turn`: its turn, or the time after which it may ask
    /// for it again. `left`: for how long its row is still taken, if that is limited. Cancel safe.
    ///
    /// Returns when the message is tried again, uncharged: at once if the codec is prepared, and later if it is not its turn, or
    /// if what it needs is unavailable, or if the codec has not kept it.
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
                if !self.is_unprepared(route, delivery).await {
                    turn.succeeded();
                    return Ok(Duration::ZERO);
                }
                BoxError::from(FORGOTTEN)
            }
            Ok(Err(PrepareError::Undecodable(error))) => {
                turn.succeeded();
                return Err(crate::error::text(error.as_ref()));
            }
            Ok(Err(PrepareError::Unavailable(error))) => error,
            Err(_) if limit < most => BoxError::from("it takes longer than the lease of a call"),
            Err(_) => format!("it took longer than {limit:?}; `.prepare_timeout(..)` sets the limit").into(),
        };
        let (tries, wait) = turn.failed();
        tracing::warn!(
            source = delivery.source(),
            message_id = delivery.message_id(),
            position = delivery.position(),
            tries,
            error = crate::error::text(error.as_ref()),
            "the codec cannot fetch the data it needs to decode a message; the message is held and retried"
        );
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
        self.routes.meters(row.identity.handler).held.increment(1);
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
        preparations.turn(ORDERS).ok().unwrap().succeeded();
        assert!(preparations.turn(ORDERS).is_ok(), "the others go on at once");
    }
}
