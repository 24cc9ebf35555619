//! The waits of parked deliveries.

use std::time::Duration;

use tracing::Instrument;

use crate::runtime::{InRow, Pipeline, Refused, Wait, busy_wait, jittered, park_delay, refused_wait, warn_of_refusal};
use crate::store::Identity;
use crate::{Acker, BoxError, Delivery, Engine, Outcome, Store, telemetry};

use super::{Arrival, Arrived, Carried, Parked};

/// After this many tries in a row without an answer, a delivery counts as refused. If another transaction holds its claim for
/// as long, the database is pinged.
const UNANSWERED: usize = 3;

/// How often a waiting delivery is checked for having been lost.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl<S: Engine> Pipeline<S> {
    /// Waits until a parked delivery can run, and returns it; `None` if nothing is left to run.
    pub(super) async fn until<A: Acker>(&self, parked: Parked<A>) -> Option<Arrival<A>> {
        let Parked { mut arrival, until } = parked;
        // As in `process`: a panic drains the worker before `arrival` is dropped.
        let _unwinding = scopeguard::guard_on_unwind(&self.draining, |draining| draining.cancel());
        let Arrived { delivery, acker, carried } = &mut *arrival;
        let can_run = match until {
            Wait::Key => {
                let turn = async {
                    if let Some(place) = &carried.order {
                        place.turn().await;
                    }
                    carried.keys.turn().await;
                };
                self.unless_over(acker, turn).await
            }
            Wait::Codec => {
                let span = telemetry::span(self.system, &self.consumer, delivery);
                self.unless_over(acker, self.prepare_delivery(delivery)).instrument(span).await
            }
            Wait::Row(row) => {
                let span = row.span.clone();
                self.settle_after(&row, &arrival.delivery, arrival.acker).instrument(span).await;
                return None;
            }
            in_vain => {
                let delay = self.in_vain(delivery, carried, in_vain);
                let over = async {
                    tokio::time::sleep(delay).await;
                    self.outage.over().await;
                    self.health.resumed().await;
                };
                self.unless_over(acker, over).await
            }
        };
        if can_run {
            return Some(arrival);
        }
        self.release(arrival).await;
        None
    }

    /// Counts a try in vain, and returns the time until the next one, which grows from try to try. No attempt is recorded.
    fn in_vain(&self, delivery: &Delivery, carried: &mut Carried, wait: Wait) -> Duration {
        let tries = carried.tries;
        match wait {
            Wait::After(delay) => delay,
            // The database may respond to others: this message may be the one that takes too long.
            Wait::Unanswered if tries >= UNANSWERED => {
                let why = "the database repeatedly did not answer for this message, although it answers for others";
                self.refused(delivery, carried, &why.into())
            }
            Wait::Unanswered => {
                carried.tries += 1;
                park_delay(tries)
            }
            Wait::Claim => {
                carried.tries += 1;
                // Another transaction holds the claim, so the database does not refuse the message.
                carried.refused = None;
                if tries + 1 >= UNANSWERED {
                    // Each claim may be held up: the table may be locked, or the database read-only.
                    self.outage.ask();
                }
                busy_wait(tries + 1)
            }
            Wait::Refused(error) => self.refused(delivery, carried, &error),
            // These waits end by themselves, or with an outage or a pause.
            Wait::Free | Wait::Codec | Wait::Key | Wait::Row(_) => Duration::ZERO,
        }
    }

    /// Counts a try of a delivery whose writes the database refuses, although it works for others, and returns the time until the
    /// next one. The log names the delivery, because it is the one to investigate.
    fn refused(&self, delivery: &Delivery, carried: &mut Carried, error: &BoxError) -> Duration {
        carried.refused.get_or_insert_with(|| Refused::new(&self.outage));
        carried.tries += 1;
        warn_of_refusal(delivery, Some(carried.tries), error.as_ref());
        refused_wait(carried.tries - 1)
    }

    /// Settles a delivery whose message is in the inbox once that is processed or dead. Until then it keeps its place, so that
    /// no other delivery of its ordering key starts.
    async fn settle_after<A: Acker>(&self, row: &InRow, delivery: &Delivery, mut acker: A) {
        let is_known = row.outcome == Outcome::Duplicate;
        let emit = || self.emit(&row.identity, delivery, &row.outcome);
        if !is_known {
            emit();
        }
        if !self.unless_over(&mut acker, S::row_done(self, &row.identity)).await {
            return self.release_unheld(acker).await;
        }
        self.settle(acker).await;
        if is_known {
            emit();
        }
    }

    /// Waits for `what`. Returns `false` if the worker drains or the delivery is lost before that.
    async fn unless_over<A: Acker>(&self, acker: &mut A, what: impl Future<Output = ()>) -> bool {
        let lost = async move {
            while acker.is_live() {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = self.draining.cancelled() => false,
            () = what => true,
            () = lost => false,
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Waits until a message in the inbox is processed or dead. This process or another one runs its row. It is checked
    /// whenever it has run here, and otherwise at each poll. Cancel safe.
    pub(crate) async fn row_done(&self, identity: &Identity) {
        let (row, mut rows) = ((identity.handler, identity.key.clone()), self.ran.subscribe());
        loop {
            let scheduled = {
                let _poll = self.poll.lock().await;
                self.store.is_scheduled(identity).await
            };
            match scheduled {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => self.outage.report(&fault),
            }
            tokio::select! {
                // If too many have run, it may be among those that are not reported.
                () = async { while rows.recv().await.is_ok_and(|ran| ran != row) {} } => {}
                () = tokio::time::sleep(jittered(self.settings.poll)) => {}
            }
            self.outage.over().await;
        }
    }
}
