//! The processing of one delivery from decode to settle.
//!
//! `worker/receive` puts each delivery into one of three queues. A lane, or the task that stores (`lane`), takes from one of them.
//! It runs or stores several deliveries as a batch, and passes those that are processed singly to [`Pipeline::deliver`]. The steps
//! that follow:
//!
//! | step | module |
//! |---|---|
//! | decode, key | `runtime/decode` |
//! | lock the key in this process | `carried.keys.take`: `runtime/key_queue` |
//! | claim, unless the handler is natural | `run/transaction`, by the rules of `take_over` |
//! | handle, guard, commit | `run` |
//! | failures | `run/end` decides; `take_over/store` writes |
//! | settle | `runtime/settle` |
//!
//! A delivery that cannot run now leaves this path: it is parked (`park`), and then starts over.

pub(crate) mod lane;

use std::pin::pin;

use async_channel::Sender;
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::{Instrument, Span};

use crate::caught::dropped;
use crate::engine::Attempted;
use crate::park::{Arrival, Arrived, Carried, Parked};
use crate::registry::NoJob;
use crate::run::{Failure, Work};
use crate::runtime::{Direct, Ended, InRow, Permit, Pipeline, Running, Wait};
use crate::take_over::{Entry, Shared};
use crate::{Acker, Delivery, Engine, Outcome, Store, telemetry};

/// How a try has ended. The error is that of an earlier step than the last one: the delivery waits, or the worker drains.
type Tried = Result<Ended, Ended>;

impl<S: Engine> Pipeline<S> {
    /// Tries to process one delivery, and settles or parks it; it is left to the broker if it is lost. `slots`: the permits of
    /// the connections that it may use, unless it has that of its lane.
    pub(crate) async fn deliver<A: Acker>(
        &self,
        slots: Option<&Semaphore>,
        arrival: Arrival<A>,
        parked: &Sender<Parked<A>>,
    ) {
        let span = telemetry::span(self.system, &self.consumer, &arrival.delivery);
        // Pinned first, like other large futures: a wrapper would move the whole future.
        pin!(self.process(slots, arrival, parked)).instrument(span).await;
    }

    async fn process<A: Acker>(&self, slots: Option<&Semaphore>, mut arrival: Arrival<A>, parked: &Sender<Parked<A>>) {
        // A panic drains the worker before `arrival` is dropped, which is declared earlier: the next delivery of an ordering
        // key must not start while this one is unsettled.
        let _unwinding = scopeguard::guard_on_unwind(&self.draining, |draining| draining.cancel());
        let Arrived { delivery, acker, carried } = &mut *arrival;
        if !acker.is_live() {
            tracing::debug!("the delivery was lost; the broker redelivers it");
            return S::leave(self, carried).await;
        }
        let Attempted(Ok(ended) | Err(ended)) = pin!(S::attempt(self, slots, delivery, carried)).await;
        self.finish(arrival, ended, parked).await;
    }

    /// Settles a delivery by what became of it in one try, releases it, or parks it. Only an ordered delivery waits for its row.
    async fn finish<A: Acker>(&self, mut arrival: Arrival<A>, ended: Ended, parked: &Sender<Parked<A>>) {
        // As in `process`: a panic drains the worker before `arrival` is dropped.
        let _unwinding = scopeguard::guard_on_unwind(&self.draining, |draining| draining.cancel());
        let Arrived { delivery, acker, carried } = &mut *arrival;
        if let Ended::Done(outcome) = &ended {
            if outcome.is_stored() {
                acker.stored();
            }
            match &carried.shares[..] {
                [] => self.kill_switch.fit(outcome),
                shares => shares.iter().for_each(|(_, outcome)| self.kill_switch.fit(outcome)),
            }
        }
        let keeps_keys =
            matches!(ended, Ended::Broke(_) | Ended::Park(Wait::Free | Wait::Claim | Wait::Unanswered | Wait::Key));
        if !keeps_keys {
            carried.keys.clear();
        }
        let until = match ended {
            Ended::Done(outcome) => {
                // Only the existence of a claim is known: its row may be waiting.
                let may_wait = matches!(outcome, Outcome::Scheduled { .. } | Outcome::Duplicate);
                match carried.identity.take_if(|_| may_wait && delivery.ordering_key.is_some()) {
                    Some(identity) => {
                        // The database has accepted the message.
                        carried.refused = None;
                        Wait::Row(Box::new(InRow { identity, outcome, span: Span::current() }))
                    }
                    None => {
                        self.settle(arrival.acker).await;
                        return self.report(&arrival.delivery, &arrival.carried, &outcome);
                    }
                }
            }
            Ended::Stopped | Ended::Lost => return self.release(arrival).await,
            Ended::Broke(_) => {
                // The message may have broken its connection, so it now runs from the inbox.
                delivery.redelivered = true;
                Wait::Unanswered
            }
            Ended::Park(wait) => wait,
            // `attempt` leaves none: it stores a failure, and runs a message again that has lost a race.
            Ended::Failed(_) | Ended::Again(_) => Wait::Claim,
        };
        if !matches!(until, Wait::Key | Wait::Row(_)) {
            let route = self.routes.find(delivery);
            route.map_or(&self.routes.nobody_meters, |route| &route.meters).parked.increment(1);
        }
        // A drain has closed the queue of those that wait.
        if let Err(closed) = parked.try_send(Parked { arrival, until }) {
            self.release(closed.into_inner().arrival).await;
        }
    }

    /// Reports the outcome of a delivery for its handler, or for each of several.
    fn report(&self, delivery: &Delivery, carried: &Carried, outcome: &Outcome) {
        carried.identity.iter().for_each(|identity| self.emit(identity, delivery, outcome));
        carried.shares.iter().for_each(|(identity, outcome)| self.emit(identity, delivery, outcome));
    }

    /// Waits for the lock of what runs directly, unless the worker drains: another worker can have the delivery before an
    /// orphaned row of this one ends.
    pub(crate) async fn direct(&self) -> Result<Direct, Ended> {
        self.draining.run_until_cancelled(self.isolation_lock.direct()).await.ok_or(Ended::Stopped)
    }

    /// Waits for the permit of a connection, if there is a limit, unless the worker drains.
    async fn enter<'a>(&self, slots: Option<&'a Semaphore>) -> Result<Option<SemaphorePermit<'a>>, Ended> {
        let Some(slots) = slots else { return Ok(None) };
        self.draining.run_until_cancelled(slots.acquire()).await.map(Result::ok).ok_or(Ended::Stopped)
    }
}

impl<S: Store> Pipeline<S> {
    /// Tries to process a delivery that one handler takes. These are the steps, in their order; the database's answer decides the
    /// result.
    pub(crate) async fn attempt(&self, slots: Option<&Semaphore>, delivery: &Delivery, carried: &mut Carried) -> Tried {
        // Decode, key: never beside an orphaned row that has the process to itself. The code of a codec, a key or a fingerprint
        // may end the process as well, and the orphaned row would be blamed.
        let beside = self.direct().await?;
        let mut work = match self.decode(delivery) {
            Ok(work) => work,
            Err(NoJob::Unprepared) => return Err(Ended::Park(Wait::Codec)),
            Err(NoJob::Undeliverable(undeliverable)) => {
                drop(beside);
                let _slot = self.enter(slots).await?;
                return Ok(self.store_failure(delivery, carried, Failure::undeliverable(undeliverable)).await);
            }
        };
        carried.identity = Some(work.identity.clone());
        let runs = self.take_turn(&mut work, carried)?;
        // Not kept during another wait: an orphaned row that waits for it would keep out those that this delivery waits for.
        let beside = (slots.is_none() && runs).then_some(beside);
        let _slot = self.enter(slots).await?;
        if !self.outage.is_up() {
            // Nothing can be written, and the delivery must not keep a lane meanwhile.
            return Err(Ended::Park(Wait::Free));
        }
        let ended = match carried.unrecorded.take() {
            Some(failure) => Ended::Failed(*failure),
            None if runs => pin!(self.run_directly(&mut work, beside)).await?,
            None => self.take_over_one(&Entry::due(work.identity.clone(), delivery)).await,
        };
        Ok(match ended {
            Ended::Failed(failure) => self.store_failure(delivery, carried, failure).await,
            ended => ended,
        })
    }

    /// Takes the turn of the message's key in this process. Returns whether the message runs in this try. If it does not, it is
    /// dropped here, beside no orphaned row. The error: another delivery has the turn.
    fn take_turn(&self, work: &mut Work<'_, S>, carried: &mut Carried) -> Result<bool, Ended> {
        // Before the wait for a connection, and never in a lane: the delivery in front may run for as long as its
        // handler may.
        let has_turn = carried.keys.take(&self.key_locks, [(work.identity.handler, &work.identity.key)]);
        let runs = has_turn && !self.stores_first(work) && carried.unrecorded.is_none();
        if !runs {
            dropped("a message", work.job.take());
        }
        if has_turn { Ok(runs) } else { Err(Ended::Park(Wait::Key)) }
    }

    /// The fast path of a first delivery: one transaction from claim to commit.
    async fn run_directly(&self, work: &mut Work<'_, S>, beside: Option<Direct>) -> Tried {
        let beside = match beside {
            Some(beside) => beside,
            None => self.direct().await?,
        };
        let running = Running::new(Permit::Direct(beside));
        let ended = running.during(&self.outage, pin!(self.run_one(work, &running))).await;
        dropped("a message", work.job.take());
        Ok(ended)
    }

    /// Stores a failure. If that is impossible now, the failure is kept, and only the store is repeated, never the run.
    async fn store_failure(&self, delivery: &Delivery, carried: &mut Carried, failure: Failure) -> Ended {
        let is_undeliverable = failure.is_undeliverable();
        let entry = match carried.identity.take() {
            Some(identity) if !is_undeliverable => Entry::new(identity, delivery, failure),
            _ => self.undeliverable(delivery, failure),
        };
        let ended = self.take_over_one(&entry).await;
        carried.identity = Some(entry.identity);
        if !is_undeliverable && matches!(ended, Ended::Park(_)) {
            carried.unrecorded = Some(Box::new(entry.failure));
        }
        ended
    }

    /// Stores a delivery for each of its handlers, and leaves the outcomes in `shares`. None of them runs it directly: if one
    /// failed, the delivery could neither be acked nor run again for that one only.
    ///
    /// If the codec of one of them has to prepare first, stores it for those whose keys are known, and leaves it to the
    /// preparation. Without its key there is no telling two messages apart, so it must not be stored for that one.
    pub(crate) async fn fan_out(&self, slots: Option<&Semaphore>, delivery: &Delivery, carried: &mut Carried) -> Tried {
        let routes: Vec<_> = self.routes.routes_for(delivery).collect();
        let beside = self.direct().await?;
        let (mut entries, is_unprepared) = self.shares(delivery, &routes);
        drop(beside);
        if is_unprepared {
            // The undeliverable are written with the rest, so that they are counted once.
            entries.retain(|entry| entry.identity.has_key());
        }
        // In claim order, like a batch, so that no two deliveries wait for each other.
        let known = entries.iter().filter(|entry| entry.identity.has_key());
        if !carried.keys.take(&self.key_locks, known.map(|entry| (entry.identity.handler, &entry.identity.key))) {
            return Err(Ended::Park(Wait::Key));
        }
        if entries.is_empty() {
            return Err(Ended::Park(Wait::Codec));
        }
        let _slot = self.enter(slots).await?;
        let Shared { outcomes, is_new } = self.take_over_for_each(&entries).await?;
        if is_unprepared {
            return Err(Ended::Park(Wait::Codec));
        }
        carried.shares = outcomes;
        Ok(Ended::Done(if is_new { Outcome::stored() } else { Outcome::Duplicate }))
    }

    /// Whether a message is stored in the inbox before it runs: each one with `.inbox()`, and one whose handler makes an external
    /// call, since the row is the intent of the call. Otherwise one that the broker has delivered before, because a process may
    /// have died on it.
    fn stores_first(&self, work: &Work<'_, S>) -> bool {
        self.settings.inbox || work.delivery.redelivered() || work.route.external.is_some()
    }
}
