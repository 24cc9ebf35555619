//! The waits of parked deliveries.

use std::pin::pin;
use std::time::Duration;

use tracing::Instrument;

use crate::runtime::{InRow, Pipeline, Wait, jittered, kept};
use crate::store::Identity;
use crate::{Acker, Delivery, Outcome, Store, telemetry};

use super::{Arrival, Arrived, Parked};

/// How often a waiting delivery is checked for having been lost.
const LOOK: Duration = Duration::from_secs(1);

impl<S: Store> Pipeline<S> {
    /// Waits until a parked delivery can run, and returns it; `None` if nothing is left to run.
    pub(super) async fn until<A: Acker>(&self, parked: Parked<A>) -> Option<Arrival<A>> {
        let Parked { mut arrival, until } = parked;
        // As in `process`: a panic drains the worker before `arrival` is dropped.
        let _unwinding = scopeguard::guard_on_unwind(&self.draining, |draining| draining.cancel());
        let Arrived { delivery, acker, carried } = &mut *arrival;
        let can_run = match until {
            Wait::Order => {
                let turn = async {
                    if let Some(place) = &carried.order {
                        place.turn().await;
                    }
                };
                self.unless_over(acker, turn).await
            }
            Wait::Key => self.unless_over(acker, carried.keys.turn()).await,
            Wait::After(delay) => self.unless_over(acker, self.after(delay)).await,
            // `in_vain` has turned them into a time.
            Wait::Free | Wait::Claim | Wait::Answer | Wait::Refused(_) => {
                self.unless_over(acker, self.after(Duration::ZERO)).await
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
        };
        if can_run {
            return Some(arrival);
        }
        self.give_up(arrival.acker).await;
        None
    }

    async fn after(&self, delay: Duration) {
        tokio::time::sleep(delay).await;
        self.outage.over().await;
        self.health.resumed().await;
    }

    /// Settles a delivery whose message is in the inbox once that is processed or dead. Until then it keeps its place, so that
    /// no other delivery of its ordering key starts.
    async fn settle_after<A: Acker>(&self, row: &InRow, delivery: &Delivery, mut acker: A) {
        let is_known = row.outcome == Outcome::Duplicate;
        let emit = || {
            let InRow { identity, outcome, .. } = row;
            self.emit(self.routes.get(identity.handler), identity.known_key(), delivery, outcome);
        };
        if !is_known {
            emit();
        }
        if !self.unless_over(&mut acker, self.row_done(&row.identity)).await {
            return self.give_up(acker).await;
        }
        self.settle(acker).await;
        if is_known {
            emit();
        }
    }

    /// Waits until a message in the inbox is processed or dead. This process or another one runs its row. It is checked
    /// whenever it has run here, and otherwise at each poll. Cancel safe.
    async fn row_done(&self, identity: &Identity) {
        let watch = self.rows.watch(identity);
        loop {
            let mut ran = pin!(watch.ran.notified());
            // Enabled now, so that a run which ends during the check is not missed.
            ran.as_mut().enable();
            let scheduled = {
                let _look = self.rows.look.lock().await;
                self.store.is_scheduled(identity).await
            };
            match scheduled {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => self.outage.report(&fault),
            }
            tokio::select! {
                () = ran => {}
                () = tokio::time::sleep(jittered(self.settings.poll)) => {}
            }
            self.outage.over().await;
        }
    }

    /// Waits for `what`. Returns `false` if the worker drains or the delivery is lost before that.
    async fn unless_over<A: Acker>(&self, acker: &mut A, what: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.draining.cancelled() => false,
            () = what => true,
            () = kept(acker, LOOK) => false,
        }
    }
}
