//! Reports the outcome of a delivery: to the broker, the metrics, the log and the observer.
//!
//! It is also reported to the kill switch: it shows that deliveries can be handled.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use tokio::time::timeout;
use tracing::Span;

use crate::panic_text::panic_text;
use crate::park::Arrival;
use crate::store::Identity;
use crate::worker::Counted;
use crate::{Acker, BoxError, Delivery, DeliveryOrder, Engine, Observed, Outcome, Settled, telemetry};

use super::pipeline::Pipeline;

/// How long the broker may take to answer. A client that never answers must not hold up a lane.
const ANSWER: Duration = Duration::from_secs(10);

async fn in_time(answer: impl Future<Output = Result<Settled, BoxError>>) -> Result<Settled, BoxError> {
    let mut answer = pin!(answer);
    // Most acks are only queued and need no timer.
    if let Poll::Ready(settled) = poll!(answer.as_mut()) {
        return settled;
    }
    timeout(ANSWER, answer).await.unwrap_or_else(|_| Err("the broker has not answered within 10 seconds".into()))
}

impl<S: Engine> Pipeline<S> {
    /// Acks the delivery. The database has answered, so nothing depends on whether the ack arrives.
    pub(crate) async fn settle<A: Acker>(&self, acker: A) {
        match in_time(acker.ack()).await {
            Ok(Settled::Sent | Settled::Confirmed) => {}
            Ok(Settled::Stale) => self.metrics.stale.increment(1),
            Err(error) => {
                self.metrics.stale.increment(1);
                tracing::debug!(
                    error,
                    "the ack was not sent; the broker redelivers the message, and the claim identifies the duplicate"
                );
            }
        }
    }

    /// Releases a delivery, unless it is lost. With an order, this is left to closing the source, which gives all deliveries
    /// back at once: the next delivery of the order may go to another consumer as soon as this one is released.
    pub(crate) async fn release<A: Acker>(&self, mut arrival: Arrival<A>) {
        S::leave(self, &mut arrival.carried).await;
        self.release_unheld(arrival.acker).await;
    }

    /// Does the same with a delivery that holds nothing.
    pub(crate) async fn release_unheld<A: Acker>(&self, acker: A) {
        if self.settings.order != DeliveryOrder::None || !acker.is_live() {
            return;
        }
        if let Err(error) = in_time(acker.release()).await {
            tracing::debug!(error, "the delivery was not released; it goes back when the connection closes");
        }
    }

    /// Returns the command that explains a message, if it has a handler and a key.
    pub(crate) fn why(&self, identity: &Identity) -> Option<String> {
        // The command knows SQL stores only.
        let identity = Some(identity).filter(|_| S::STORES)?;
        let (route, key) = (self.routes.get(identity.handler)?, identity.known_key()?);
        let handler = format!("{}/{}", self.consumer, route.handler.facts().name);
        Some(self.store.about().command(&["why"], &[&handler, &key.to_string()]))
    }

    /// Reports the outcome of a message for one handler, or for nobody, to the metrics, the log and the observer.
    pub(crate) fn emit(&self, identity: &Identity, delivery: &Delivery, outcome: &Outcome) {
        self.routes.meters(identity.handler).count(outcome);
        if let Some(counted) = Counted::of(outcome) {
            self.member.count(counted);
        }
        if telemetry::is_traced() {
            Span::current().record("idem.outcome", outcome.as_str());
        }
        // Failures were logged with their cause where they were written.
        let why = || self.why(identity).map(tracing::field::display);
        tracing::debug!(outcome = outcome.as_str(), why = why(), "the delivery is settled");
        if let Some(observe) = &self.settings.observe {
            let handler = self.routes.get(identity.handler).map(|route| route.handler.facts().name);
            let key = identity.known_key();
            let observed = Observed { delivery, handler, key, outcome };
            // An observer that panics must not cost the lane.
            if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| observe(observed))) {
                tracing::warn!(panic = panic_text(panic.as_ref()), "the observer panicked");
            }
        }
    }
}
