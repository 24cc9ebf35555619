//! The way of one delivery: receive, limits, decode, key, begin, claim, handle, guard, commit, settle, emit.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::{Mutex, Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::inbox::{Leases, Refusals};
use crate::ran::{Failure, IN_PLACE, Ran};
use crate::registry::{Job, Route, Routes, Unfit, Work};
use crate::store::{Fault, Identity, Promise};
use crate::telemetry::{self, Gauges};
use crate::worker::{
    Brake, Defect, Flights, Gate, Health, Hold, Lanes, Outage, Place, RowWait, Rows, Settings, UNANSWERED, Unwinding,
    Waiting, extended, hold_wait, refused_wait, unanswered,
};
use crate::{Acker, BoxError, Delivery, Key, Lag, Ordering, Outcome, Reason, Settled, Store};

/// What all lanes of a worker share.
pub(crate) struct Pipeline<S: Store> {
    pub(crate) store: S,
    pub(crate) consumer: String,
    pub(crate) system: &'static str,
    pub(crate) routes: Routes<S>,
    pub(crate) settings: Settings,
    pub(crate) flights: Flights,
    pub(crate) pace: crate::batch::Pace,
    pub(crate) gate: Gate,
    /// The rows of the inbox that wait here for their run.
    pub(crate) leases: Leases,
    /// The rows that the database refuses.
    pub(crate) refusals: Refusals,
    /// The inbox's own statements are asked one at a time, on one connection.
    pub(crate) own_statements: Mutex<()>,
    pub(crate) outage: Arc<Outage>,
    pub(crate) health: Health,
    pub(crate) brake: Brake,
    pub(crate) defect: Defect,
    pub(crate) gauges: Gauges,
    /// Asks how much waits at the broker, while there is a subscription that tells.
    pub(crate) lag: watch::Sender<Option<Lag>>,
    /// Room for those that are stored alone: that many connections are kept for them beside the lanes.
    pub(crate) alone: Semaphore,
    /// Rung when something was parked, so that the inbox need not wait for its poll.
    pub(crate) parked: Notify,
    /// The rows that ordered deliveries wait for.
    pub(crate) rows: Rows,
    pub(crate) lanes: Lanes,
    /// How many deliveries the broker was told about: the source is of use.
    pub(crate) settled: AtomicU64,
    /// The worker drains: what is not running is released.
    pub(crate) draining: CancellationToken,
    /// The patience of the drain has ended: what runs is cut off.
    pub(crate) stop: CancellationToken,
}

/// What one try of a delivery came to.
pub(crate) enum Step {
    /// The database has answered.
    Done(Outcome),
    /// It has, for a delivery of a lane, and the message is in the inbox, or may be: its lane waits for it.
    InRow(Outcome, Box<Identity>),
    /// It has not; the delivery is kept unsettled and tried again.
    Hold(Hold),
    /// It refuses what is written for this message, and works for others. Its handler has run and failed, or has not.
    Refused { error: BoxError, ran: bool },
    /// The run was cut off by the end of the worker.
    Stopped,
}

impl<S: Store> Pipeline<S> {
    /// Takes one delivery all the way. It ends settled, or left to the broker where it is no longer ours. What is answered
    /// has to wait for its row: only an ordered delivery has to.
    pub(crate) async fn deliver<A: Acker>(
        &self,
        delivery: Delivery,
        acker: A,
        place: Option<Place>,
    ) -> Option<Waiting<A>> {
        self.deliver_in(None, delivery, acker, place).await
    }

    /// As [`deliver`](Self::deliver), with a connection only while there is room.
    pub(crate) async fn deliver_in<A: Acker>(
        &self,
        room: Option<&Semaphore>,
        delivery: Delivery,
        acker: A,
        place: Option<Place>,
    ) -> Option<Waiting<A>> {
        let span = telemetry::span(self.system, &self.consumer, &delivery);
        // Pinned first, as other large futures are: a wrapper would move all of it.
        pin!(self.drive(room, delivery, acker, place)).instrument(span).await
    }

    async fn drive<A: Acker>(
        &self,
        room: Option<&Semaphore>,
        mut delivery: Delivery,
        mut acker: A,
        place: Option<Place>,
    ) -> Option<Waiting<A>> {
        // Behind `place`, and so dropped before it.
        let _unwinding = Unwinding(&self.draining);
        let mut holds = 0;
        let outcome = loop {
            if !acker.is_live() {
                tracing::debug!("the delivery is no longer ours; the broker delivers it again");
                return None;
            }
            if self.draining.is_cancelled() {
                self.release(acker).await;
                return None;
            }
            let step = extended(&mut acker, pin!(self.attempt(room, &delivery))).await;
            if let Step::Done(Outcome::Parked { attempt: 0, .. }) | Step::InRow(Outcome::Parked { attempt: 0, .. }, _) =
                &step
            {
                acker.stored();
            }
            if let Step::Done(outcome) | Step::InRow(outcome, _) = &step {
                self.answered(outcome);
            }
            match step {
                Step::Done(outcome) => break outcome,
                Step::InRow(outcome, identity) => {
                    let span = Span::current();
                    return Some(Waiting::Row(Box::new(RowWait { delivery, acker, place, identity, outcome, span })));
                }
                Step::Stopped => {
                    self.release(acker).await;
                    return None;
                }
                Step::Refused { error, ran } => {
                    return self.set_aside(delivery, acker, place, ran, error).await;
                }
                // Others are answered, perhaps: it may be this message that takes too long.
                Step::Hold(Hold::Lost) if holds >= UNANSWERED => {
                    return self.set_aside(delivery, acker, place, false, unanswered()).await;
                }
                Step::Hold(hold) => {
                    // A process or a connection may have died on it: from now on it goes by way of the inbox.
                    delivery.redelivered |= hold == Hold::Broke;
                    self.meters(&delivery).held();
                    extended(&mut acker, self.hold(hold, holds)).await;
                    holds += 1;
                }
            }
        };
        self.settle(acker).await;
        self.emit(self.meters(&delivery), &delivery, &outcome);
        None
    }

    /// The database has answered a delivery.
    pub(crate) fn answered(&self, outcome: &Outcome) {
        self.brake.fit(outcome);
        self.wrote(outcome);
    }

    /// The outcome of a message stands, and says something of the database if it was written.
    pub(crate) fn wrote(&self, outcome: &Outcome) {
        if *outcome != Outcome::Duplicate {
            self.outage.works();
        }
    }

    /// One try: what the database answers decides.
    async fn attempt(&self, room: Option<&Semaphore>, delivery: &Delivery) -> Step {
        let work = match self.receive(delivery) {
            Ok(work) => work,
            Err(unfit) => {
                let _room = self.room(room, delivery).await;
                return self.bury(delivery, unfit).await;
            }
        };
        // Waited for in memory, so before the room.
        let _flight = self.flights.enter(work.identity.handler, &work.identity.key).await;
        let _room = self.room(room, delivery).await;
        let in_lane = delivery.lane.map(|_| Box::new(work.identity.clone()));
        let step = if delivery.redelivered() || self.settings.inbox {
            self.store_first(delivery, &work.identity).await
        } else {
            match self.run_beside(delivery, work.route, &work.identity, work.job).await {
                Ok(step) => step,
                Err(failure) => self.charge(delivery, &work.identity, &failure).await,
            }
        };
        match (step, in_lane) {
            // Known is no more than that there is a claim: its row may be waiting.
            (Step::Done(outcome @ (Outcome::Parked { .. } | Outcome::Duplicate)), Some(identity)) => {
                Step::InRow(outcome, identity)
            }
            (step, _) => step,
        }
    }

    /// Room for one more connection. The caller's room, where there is one; else that of what is stored beside the lanes,
    /// which have connections of their own: redelivered messages in no order, and all messages with `.inbox()`.
    async fn room<'a>(&'a self, room: Option<&'a Semaphore>, delivery: &Delivery) -> Option<SemaphorePermit<'a>> {
        if let Some(room) = room {
            return room.acquire().await.ok();
        }
        let beside_lanes = self.settings.ordering == Ordering::None && (self.settings.inbox || delivery.redelivered());
        if beside_lanes { self.alone.acquire().await.ok() } else { None }
    }

    /// Runs beside others, unless a suspect runs.
    async fn run_beside(
        &self,
        delivery: &Delivery,
        route: &Route<S>,
        id: &Identity,
        job: Box<dyn Job<S>>,
    ) -> Result<Step, Failure> {
        let _room = self.gate.direct().await;
        if self.draining.is_cancelled() {
            return Ok(Step::Stopped);
        }
        self.run(delivery, route, id, job).await
    }

    /// Limits, decode, key: all that can refuse a delivery before a transaction begins.
    pub(crate) fn receive(&self, delivery: &Delivery) -> Result<Work<'_, S>, Unfit> {
        self.limit(delivery)?;
        let route = self.routes.find(delivery)?;
        let mut key = Key::empty();
        let job = route.handler.prepare(delivery, &mut key)?;
        let span = Span::current();
        span.record("idem.handler", route.handler.name());
        span.record("idem.key", tracing::field::display(&key));
        let identity = Identity { handler: route.id, key, fingerprint: route.handler.fingerprint(delivery)? };
        Ok(Work { route, identity, job })
    }

    /// Reads what a delivery says of itself as a CloudEvent, where that is asked for: as it is received, and as its row is
    /// taken from the inbox, which keeps it as it came.
    pub(crate) fn recognize(&self, delivery: &mut Delivery) {
        if self.settings.cloud_events && delivery.payload().len() <= self.settings.payload_limit {
            delivery.cloud_event = crate::cloud_event::read(delivery);
        }
    }

    /// Whether it can be taken over at all.
    pub(crate) fn limit(&self, delivery: &Delivery) -> Result<(), Unfit> {
        if let Some(why) = &delivery.unrepresentable {
            return Err(Unfit::new(Reason::Unrepresentable, why.to_string()));
        }
        let (size, limit) = (delivery.payload().len(), self.settings.payload_limit);
        if size > limit {
            let text = format!("the payload has {size} bytes, and the limit is {limit}: raise `.payload_limit(..)`");
            return Err(Unfit::new(Reason::TooLarge, text));
        }
        if let Some(Err(why)) = &delivery.cloud_event {
            return Err(Unfit::new(Reason::Undecodable, why));
        }
        Ok(())
    }

    /// The short way of a first delivery: begin, claim, handle, guard, commit. The error is a failure to charge it with.
    async fn run(
        &self,
        delivery: &Delivery,
        route: &Route<S>,
        identity: &Identity,
        job: Box<dyn Job<S>>,
    ) -> Result<Step, Failure> {
        let mut job = Some(job);
        for round in 0.. {
            let ready = match job.take().map_or_else(|| self.again(route, delivery, identity), Ok) {
                Ok(ready) => ready,
                Err(unfit) => return Ok(self.bury(delivery, unfit).await),
            };
            let began = Instant::now();
            let claimed = self.claimed(route, delivery, identity, Promise::Processed).await;
            let opened = Instant::now();
            route.meters.claim.record(opened - began);
            let (txn, old) = match claimed {
                Ok(claimed) => claimed,
                Err(step) => return Ok(step),
            };
            if let Some(why) = old {
                return Ok(self.bury_too_old(txn, delivery, identity, &why).await);
            }
            match self.execute(route, ready, txn, opened).await {
                Ran::Processed => return Ok(Step::Done(Outcome::Processed)),
                Ran::Retry(error) if round < IN_PLACE => {
                    tracing::debug!(error = error.to_string(), "lost against a concurrent transaction; tried anew");
                }
                Ran::Retry(error) => return Err(Failure::of(&error)),
                Ran::Failed(failure) => return Err(failure),
                Ran::CommittedEarly => return Ok(Step::Done(self.committed_early(delivery, identity, 1).await)),
                Ran::Broke(fault) => {
                    self.outage.report(&fault);
                    return Ok(Step::Hold(Hold::Broke));
                }
                Ran::Stopped => return Ok(Step::Stopped),
            }
        }
        Ok(Step::Stopped)
    }

    /// Decodes once more, since a run has consumed the message.
    pub(crate) fn again(
        &self,
        route: &Route<S>,
        delivery: &Delivery,
        identity: &Identity,
    ) -> Result<Box<dyn Job<S>>, Unfit> {
        route.handler.prepare(delivery, &mut identity.key.clone())
    }

    /// Tells the broker. The database has answered, so that nothing depends on whether this arrives.
    pub(crate) async fn settle<A: Acker>(&self, acker: A) {
        match acker.ack().await {
            Ok(Settled::Sent | Settled::Confirmed) => drop(self.settled.fetch_add(1, Relaxed)),
            Ok(Settled::Stale) => self.gauges.stale.increment(1),
            Err(error) => {
                self.gauges.stale.increment(1);
                tracing::debug!(error, "the ack was not sent; the broker delivers again, and the claim answers");
            }
        }
    }

    /// Gives a delivery back. Where an order is kept it is left to the end of the source, which gives all back at once:
    /// what is behind it may go to another consumer as soon as this one is released.
    pub(crate) async fn release<A: Acker>(&self, acker: A) {
        if self.settings.ordering != Ordering::None {
            return;
        }
        if let Err(error) = acker.release().await {
            tracing::debug!(error, "the delivery was not released; it goes back when the connection closes");
        }
    }

    /// Tells the people: metrics, a line, the observer.
    pub(crate) fn emit(&self, meters: &telemetry::Meters, delivery: &Delivery, outcome: &Outcome) {
        self.health.progress();
        meters.count(outcome);
        Span::current().record("idem.outcome", outcome.as_str());
        match outcome {
            Outcome::Dead { reason } => tracing::error!(%reason, "the message is a dead letter"),
            Outcome::Parked { attempt, due } if *attempt > 0 => tracing::warn!(attempt, ?due, "the message is parked"),
            outcome => tracing::debug!(outcome = outcome.as_str(), "the delivery is settled"),
        }
        if let Some(observe) = &self.settings.observe {
            // An observer that panics must not cost the lane.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| observe(delivery, outcome)));
        }
    }

    pub(crate) fn meters(&self, delivery: &Delivery) -> &telemetry::Meters {
        self.routes.find(delivery).map_or(&self.routes.nobody_meters, |route| &route.meters)
    }

    /// Keeps a delivery for a while, without connection, row or transaction. The drain ends it.
    pub(crate) async fn hold(&self, hold: Hold, holds: usize) {
        let wait = async {
            if hold != Hold::Busy && self.outage.over_or_trial().await {
                return;
            }
            match hold {
                Hold::Unfit => self.health.resumed().await,
                Hold::Again => {}
                Hold::Refused => tokio::time::sleep(refused_wait(holds)).await,
                _ => tokio::time::sleep(hold_wait(holds)).await,
            }
        };
        tokio::select! {
            () = wait => {}
            () = self.draining.cancelled() => {}
        }
    }

    /// What a fault of one of our own statements means for a delivery.
    pub(crate) fn hold_for(&self, fault: Fault) -> Step {
        self.outage.report(&fault);
        match fault {
            Fault::Message(error) => Step::Refused { error, ran: false },
            fault => Step::Hold(Hold::from(&fault)),
        }
    }

    /// Gives a transaction up after a fault. The connection is of use again if it answers.
    pub(crate) async fn abandon(&self, txn: S::Txn, fault: Fault) -> Step {
        if fault.is_answered()
            && let Err(fault) = self.store.rollback(txn).await
        {
            return self.hold_for(fault);
        }
        self.hold_for(fault)
    }
}

/// Called with each delivery and its outcome.
pub(crate) type Observer = Arc<dyn Fn(&Delivery, &Outcome) + Send + Sync>;
