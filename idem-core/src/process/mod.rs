//! The processing of one delivery from decode to settle.
//!
//! `worker/receive` puts each delivery into one of three queues. A lane (`worker/lane`) takes from one of them and calls
//! `deliver_some` (`batch/deliver`). That function runs several deliveries as a batch, and passes a single one to
//! [`Pipeline::deliver`]; without `.batch(n)`, there is always one. The steps that follow:
//!
//! | step | module |
//! |---|---|
//! | decode, key | `runtime/decode` |
//! | lock the key in this process | `carried.keys.take`: `runtime/key_tickets`, `runtime/key_queue` |
//! | claim, unless the handler is natural | `record/claim`, by the rules of `record/classify` |
//! | handle, guard, commit | `execute` |
//! | failures | `execute/conclude` decides; `record` writes |
//! | settle | `runtime/settle` |
//!
//! A delivery leaves this path if it has to wait, and then starts over:
//!
//! | file | contents |
//! |---|---|
//! | `waiting` | why a delivery waits |
//! | `wait` | the task in which all of them wait, and the start of each wait |
//! | `row_done` | the wait for the inbox row of a message |
//! | `preparing` | the wait for a codec |
//! | `fan_out` | deliveries that several handlers take |
//! | `set_aside` | the wait if the database refuses the delivery |
//! | `room` | permits for one more connection |

mod fan_out;
mod preparing;
mod room;
mod row_done;
mod set_aside;
pub(crate) mod wait;
mod waiting;

use std::pin::pin;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::Instrument;

use crate::execute::Conclusion;
use crate::record::{Classified, committed_early};
use crate::registry::{Job, NoJob};
use crate::routes::Route;
use crate::runtime::{
    Carried, Charge, Direct, HoldReason, Permit, Pipeline, Progress, UNANSWERED, Unwinding, extended, unanswered,
};
use crate::store::Identity;
use crate::{Acker, Delivery, Outcome, Store, telemetry};

pub(crate) use waiting::Waiting;

impl<S: Store> Pipeline<S> {
    /// Processes one delivery until it is settled, or left to the broker because it is lost. Returns it if it has to
    /// wait; only an ordered delivery waits for its row.
    // Not `async`: a future around the other one would move its arguments once more.
    pub(crate) fn deliver<A: Acker>(
        &self,
        delivery: Box<Delivery>,
        acker: A,
        carried: Carried,
    ) -> impl Future<Output = Option<Waiting<A>>> {
        self.deliver_in(None, delivery, acker, carried)
    }

    /// Does the same as [`deliver`](Self::deliver), but takes a permit of `room` before it uses a connection.
    pub(crate) async fn deliver_in<A: Acker>(
        &self,
        room: Option<&Semaphore>,
        delivery: Box<Delivery>,
        acker: A,
        carried: Carried,
    ) -> Option<Waiting<A>> {
        let span = telemetry::span(self.system, &self.consumer, &delivery);
        // Pinned first, like other large futures: a wrapper would move the whole future.
        pin!(self.process(room, delivery, acker, carried)).instrument(span).await
    }

    /// Retries until the database has responded, then settles.
    async fn process<A: Acker>(
        &self,
        room: Option<&Semaphore>,
        mut delivery: Box<Delivery>,
        mut acker: A,
        mut carried: Carried,
    ) -> Option<Waiting<A>> {
        // Declared after `carried`, and so dropped before it.
        let _unwinding = Unwinding(&self.draining);
        let outcome = loop {
            if !acker.is_live() {
                tracing::debug!("the delivery was lost; the broker redelivers it");
                return None;
            }
            if self.draining.has_begun() {
                self.release(acker).await;
                return None;
            }
            let step = extended(&mut acker, pin!(self.attempt(room, &delivery, &mut carried))).await;
            self.record_answer(&mut acker, &step);
            if !matches!(step, Progress::Behind | Progress::Hold(_)) {
                carried.keys.clear();
            }
            match step {
                Progress::Done(outcome) => break outcome,
                Progress::InRow(outcome, identity) => {
                    // The database has accepted it.
                    delivery.forget_refusals();
                    return Some(Waiting::row(delivery, acker, carried.order, outcome, identity));
                }
                Progress::Shared(shared) => {
                    self.settle_shared(acker, &delivery, &shared).await;
                    return None;
                }
                Progress::Behind => return Some(Waiting::Key(delivery, acker, carried)),
                Progress::Stopped => {
                    self.release(acker).await;
                    return None;
                }
                Progress::Unprepared => return self.leave_to_prepare(delivery, acker, carried).await,
                Progress::Refused(error) => return self.set_aside(delivery, acker, carried, error).await,
                // The database may respond to others: this message may be the one that takes too long.
                Progress::Hold(HoldReason::Lost) if delivery.holds >= UNANSWERED => {
                    return self.set_aside(delivery, acker, carried, unanswered()).await;
                }
                Progress::Hold(hold) => {
                    self.count_hold(&mut delivery, hold);
                    if hold == HoldReason::Busy {
                        // Another transaction holds its claim, so the database does not refuse it.
                        delivery.forget_refusals();
                        return Some(Waiting::Busy(delivery, acker, carried));
                    }
                    extended(&mut acker, self.hold(hold, delivery.holds.saturating_sub(1))).await;
                }
            }
        };
        self.settle_and_emit(acker, &delivery, &outcome).await;
        None
    }

    /// Informs the acker, the brake and the outage of an outcome that the database has confirmed.
    fn record_answer<A: Acker>(&self, acker: &mut A, step: &Progress) {
        let (Progress::Done(outcome) | Progress::InRow(outcome, _)) = step else { return };
        if outcome.is_stored() {
            acker.stored();
        }
        self.answered(outcome);
    }

    fn count_hold(&self, delivery: &mut Delivery, hold: HoldReason) {
        // A process or a connection may have died on it, so it now runs from the inbox.
        delivery.redelivered |= hold == HoldReason::Broke;
        self.meters(delivery).held();
        // A delivery that is put off, or whose claim is gone, has met no problem of its own.
        delivery.holds += usize::from(hold != HoldReason::Again);
    }

    /// Settles, then reports. The database has responded, and nothing depends on the result.
    pub(super) async fn settle_and_emit<A: Acker>(&self, acker: A, delivery: &Delivery, outcome: &Outcome) {
        self.settle(acker).await;
        self.emit(self.meters(delivery), delivery, outcome);
    }

    /// Makes one attempt; the database's response decides the result.
    async fn attempt(&self, room: Option<&Semaphore>, delivery: &Delivery, carried: &mut Carried) -> Progress {
        // Decode, key.
        let (work, beside) = match self.decode_beside(delivery).await {
            Ok(decoded) => decoded,
            Err(NoJob::Unprepared) => return Progress::Unprepared,
            Err(NoJob::Several) => return self.fan_out(room, delivery, &mut carried.keys).await,
            Err(NoJob::Unfit(unfit)) => {
                let _room = self.room(room, delivery).await;
                return self.dead_letter(delivery, unfit).await;
            }
        };
        // Before the wait for a connection, and never in a lane: the delivery in front may run for as long as its
        // handler may.
        if !carried.keys.take(&self.key_locks, [(work.identity.handler, &work.identity.key)]) {
            return Progress::Behind;
        }
        // The row is the intent of its external call.
        let stores_first = self.stores_first(delivery) || work.route.external.is_some();
        // Not kept during another wait: a suspect that waits for it would keep out those that this delivery waits for.
        let beside = (room.is_none() && !stores_first).then_some(beside);
        let _room = self.room(room, delivery).await;
        let ordered = delivery.ordering_key.map(|_| Box::new(work.identity.clone()));
        let ran = match carried.charge.take() {
            Some(charge) => {
                drop(beside);
                Err(charge)
            }
            None if stores_first => Ok(self.enqueue(delivery, &work.identity).await),
            None => self.run(beside, delivery, work.route, &work.identity, work.job).await.map_err(Box::new),
        };
        let step = match ran {
            Ok(step) => step,
            Err(charge) => {
                let step = self.charge(delivery, &work.identity, &charge).await;
                if matches!(step, Progress::Hold(_) | Progress::Refused(_)) {
                    carried.charge = Some(charge);
                }
                step
            }
        };
        match (step, ordered) {
            // Only the existence of a claim is known: its row may be waiting.
            (Progress::Done(outcome @ (Outcome::Scheduled { .. } | Outcome::Duplicate)), Some(identity)) => {
                Progress::InRow(outcome, identity)
            }
            (step, _) => step,
        }
    }

    /// The fast path of a first delivery: one transaction from claim to commit; without a claim if the handler is natural.
    /// It runs concurrently with others unless a suspect runs. The error is a failure to charge; nothing of it is in the
    /// database.
    async fn run(
        &self,
        beside: Option<Direct>,
        delivery: &Delivery,
        route: &Route<S>,
        identity: &Identity,
        job: Box<dyn Job<S>>,
    ) -> Result<Progress, Charge> {
        let beside = match beside {
            Some(beside) => beside,
            None => self.suspect_lock.direct().await,
        };
        if self.draining.has_begun() {
            return Ok(Progress::Stopped);
        }
        let (running, mut job) = (self.running(Permit::Direct(beside)), Some(job));
        for rounds in 0.. {
            let again = || running.user_code().map(|_user_code| self.again(route, delivery, identity));
            let Some(decoded) = job.take().map_or_else(again, |job| Some(Ok(job))) else {
                return Ok(Progress::Hold(HoldReason::Again));
            };
            let ready = match decoded {
                Ok(ready) => ready,
                Err(NoJob::Unprepared | NoJob::Several) => return Ok(Progress::Unprepared),
                Err(NoJob::Unfit(unfit)) => return Ok(self.dead_letter(delivery, unfit).await),
            };
            // Claim.
            let began = Instant::now();
            let claimed = self.begin_first(route, delivery, identity).await;
            let opened = Instant::now();
            route.meters.claim.record(opened - began);
            let txn = match claimed {
                Ok((txn, Classified::New)) => txn,
                Ok((txn, Classified::TooOld(dead))) => {
                    return Ok(self.dead_letter_too_old(txn, delivery, identity, &dead.error).await);
                }
                Ok((txn, known)) => return Ok(self.answer(txn, route, &known).await),
                Err(step) => return Ok(step),
            };
            // Handle, guard, commit.
            let ran = self.execute(&running, route, (identity, delivery), ready, txn, opened).await;
            return match self.conclude(route, ran, 0, rounds) {
                Conclusion::Retry => continue,
                Conclusion::Processed => Ok(Progress::Done(Outcome::Processed)),
                Conclusion::Charge(charge) => Err(charge),
                // No claim stands: the message is recorded as one that failed for the last time.
                Conclusion::CommittedEarly { attempts, .. } if route.is_unclaimed => Err(committed_early(attempts)),
                Conclusion::CommittedEarly { attempts, ticket } => {
                    Ok(Progress::Done(self.committed_early(delivery, identity, attempts, &ticket).await))
                }
                Conclusion::Busy => Ok(Progress::Hold(HoldReason::Busy)),
                Conclusion::Broke(_) => Ok(Progress::Hold(HoldReason::Broke)),
                Conclusion::PutOff => Ok(Progress::Hold(HoldReason::Again)),
                Conclusion::Stopped => Ok(Progress::Stopped),
            };
        }
        Ok(Progress::Stopped)
    }
}
