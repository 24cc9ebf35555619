//! The task in which deliveries wait. They use memory but no lane: lanes are for deliveries that can run.
//!
//! The waits start in [`Pipeline::wait`]. The queues of ordering keys and message keys are in `runtime/key_queue`; the
//! waits with more than one step are in `row_done`, `preparing` and `set_aside`.

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tracing::Instrument;

use crate::runtime::{Arrival, HoldReason, Pipeline, Queue, Unwinding, refused_wait};
use crate::{Acker, Outcome, Store, telemetry};

use super::waiting::{RowWait, Waiting};

/// Keeps waiting deliveries, extends their leases, and passes each one to the lanes when its wait ends. Returns once
/// `waiting` is closed and empty and no delivery waits. The worker's drain closes it and ends the waits.
pub(crate) async fn run<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    waiting: Queue<Waiting<A>>,
    lanes: Queue<Arrival<A>>,
) {
    let mut waits = FuturesUnordered::new();
    let mut open = true;
    while open || !waits.is_empty() {
        tokio::select! {
            received = waiting.recv(), if open => match received {
                Some(wait) => waits.push(pipeline.defect.task("waiting", pipeline.wait(wait))),
                None => open = false,
            },
            Some(ended) = waits.next() => {
                // A drain may have closed the lanes meanwhile.
                if let Some(arrival) = ended.flatten()
                    && let Err((_, acker, _)) = lanes.try_push(arrival)
                {
                    pipeline.release(acker).await;
                }
            }
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Waits until the delivery can run, and returns it; `None` if nothing is left to run.
    pub(crate) async fn wait<A: Acker>(&self, waiting: Waiting<A>) -> Option<Arrival<A>> {
        match waiting {
            Waiting::Turn(delivery, mut acker, place) => {
                let _unwinding = Unwinding(&self.draining);
                if self.unless_over(&mut acker, place.turn()).await {
                    return Some((delivery, acker, Some(place).into()));
                }
                self.give_up(acker).await;
            }
            Waiting::Key(delivery, mut acker, carried) => {
                let _unwinding = Unwinding(&self.draining);
                if self.unless_over(&mut acker, carried.keys.turn()).await {
                    return Some((delivery, acker, carried));
                }
                self.give_up(acker).await;
            }
            Waiting::Busy(delivery, mut acker, carried) => {
                let _unwinding = Unwinding(&self.draining);
                if self.unless_over(&mut acker, self.hold(HoldReason::Busy, delivery.holds)).await {
                    return Some((delivery, acker, carried));
                }
                self.give_up(acker).await;
            }
            Waiting::Refused(delivery, mut acker, carried) => {
                let _unwinding = Unwinding(&self.draining);
                if self.refused(&mut acker, refused_wait(delivery.rare().refused.tries().saturating_sub(1))).await {
                    return Some((delivery, acker, carried));
                }
                self.give_up(acker).await;
            }
            Waiting::Preparation(mut delivery, mut acker, carried) => {
                let _unwinding = Unwinding(&self.draining);
                let span = telemetry::span(self.system, &self.consumer, &delivery);
                if self.prepared(&mut delivery, &mut acker).instrument(span).await {
                    return Some((delivery, acker, carried));
                }
                self.give_up(acker).await;
            }
            Waiting::Row(row) => {
                let span = row.span.clone();
                self.wait_for_row(*row).instrument(span).await;
            }
        }
        None
    }

    async fn wait_for_row<A: Acker>(&self, wait: RowWait<A>) {
        let RowWait { delivery, mut acker, place, identity, outcome, .. } = wait;
        let _unwinding = Unwinding(&self.draining);
        let known = outcome == Outcome::Duplicate;
        if !known {
            self.emit(self.meters(&delivery), &delivery, &outcome);
        }
        if !self.row_done(&mut acker, &identity).await {
            return self.give_up(acker).await;
        }
        self.settle(acker).await;
        if known {
            self.emit(self.meters(&delivery), &delivery, &outcome);
        }
        drop(place);
    }

    /// Ends a wait without success: the worker drains, or the delivery is lost.
    async fn give_up<A: Acker>(&self, acker: A) {
        if acker.is_live() {
            return self.release(acker).await;
        }
        tracing::debug!("the delivery was lost; the broker redelivers it");
    }
}
