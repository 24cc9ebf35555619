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
use crate::park::{Arrival, Arrived, Carried, Parked};
use crate::registry::NoJob;
use crate::run::Failure;
use crate::runtime::{Direct, Ended, InRow, Permit, Pipeline, Running, Wait, hold_wait};
use crate::take_over::{Entry, Shared};
use crate::{Acker, Delivery, DeliveryOrder, Outcome, Store, telemetry};

impl<S: Store> Pipeline<S> {
    /// Tries to process one delivery, and settles or parks it; it is left to the broker if it is lost. Takes a permit of `room`,
    /// if there is one, before it uses a connection.
    async fn deliver<A: Acker>(&self, room: Option<&Semaphore>, arrival: Arrival<A>, parked: &Sender<Parked<A>>) {
        let span = telemetry::span(self.system, &self.consumer, &arrival.delivery);
        // Pinned first, like other large futures: a wrapper would move the whole future.
        pin!(self.process(room, arrival, parked)).instrument(span).await;
    }

    async fn process<A: Acker>(&self, room: Option<&Semaphore>, mut arrival: Arrival<A>, parked: &Sender<Parked<A>>) {
        // A panic drains the worker before `arrival` is dropped, which is declared earlier: the next delivery of an ordering
        // key must not start while this one is unsettled.
        let _unwinding = scopeguard::guard_on_unwind(&self.draining, |draining| draining.cancel());
        let Arrived { delivery, acker, carried } = &mut *arrival;
        if !acker.is_live() {
            tracing::debug!("the delivery was lost; the broker redelivers it");
            return;
        }
        let ended = if self.routes.are_several(delivery) {
            pin!(self.fan_out(room, delivery, carried)).await
        } else {
            pin!(self.attempt(room, delivery, carried)).await
        };
        self.finish(arrival, ended, parked).await;
    }

    /// Settles a delivery by what became of it in one try, releases it, or parks it. Only an ordered delivery waits for its row.
    async fn finish<A: Acker>(&self, mut arrival: Arrival<A>, ended: Ended, parked: &Sender<Parked<A>>) {
        // As in `process`: a panic drains the worker before `arrival` is dropped.
        let _unwinding = scopeguard::guard_on_unwind(&self.draining, |draining| draining.cancel());
        let Arrived { delivery, acker, carried } = &mut *arrival;
        if let Some(outcome) = ended.confirmed() {
            if outcome.is_stored() {
                acker.stored();
            }
            match &carried.shares[..] {
                [] => self.kill_switch.fit(outcome),
                shares => shares.iter().for_each(|(_, outcome)| self.kill_switch.fit(outcome)),
            }
        }
        let keeps_keys =
            matches!(ended, Ended::Broke(_) | Ended::Park(Wait::Free | Wait::Claim | Wait::Answer | Wait::Key));
        if !keeps_keys {
            carried.keys.clear();
        }
        let until = match ended {
            Ended::Done(outcome) => {
                self.settle(arrival.acker).await;
                let (delivery, carried) = (&arrival.delivery, &arrival.carried);
                if carried.shares.is_empty() {
                    self.emit(self.routes.find(delivery).ok(), carried.key.as_ref(), delivery, &outcome);
                }
                for (identity, outcome) in &carried.shares {
                    self.emit(self.routes.get(identity.handler), identity.known_key(), delivery, outcome);
                }
                return;
            }
            Ended::Stopped | Ended::Lost => return self.release(arrival.acker).await,
            Ended::Broke(_) => {
                // A process or a connection may have died on it, so it now runs from the inbox.
                delivery.redelivered = true;
                carried.tries += 1;
                Wait::After(hold_wait(carried.tries - 1))
            }
            Ended::Park(wait) => wait,
            // `attempt` leaves none: it stores a failure, and runs again what has lost a race.
            Ended::Failed(_) | Ended::Again(_) => Wait::Claim,
        };
        if !matches!(until, Wait::Key | Wait::Row(_)) {
            self.meters(delivery).held.increment(1);
        }
        self.park(Parked { arrival, until }, parked).await;
    }

    /// Makes one attempt; the database's response decides the result. A failure is stored.
    async fn attempt(&self, room: Option<&Semaphore>, delivery: &Delivery, carried: &mut Carried) -> Ended {
        // Decode, key: never beside an orphaned row that has the process to itself. The code of a codec, a key or a fingerprint
        // may end the process as well, and the orphaned row would be blamed.
        let Some(beside) = self.direct().await else { return Ended::Stopped };
        let decoded = self.decode(delivery);
        carried.key = decoded.as_ref().ok().map(|work| work.identity.key.clone());
        let mut work = match decoded {
            Ok(work) => work,
            Err(NoJob::Unprepared) => return Ended::Park(Wait::Codec),
            Err(NoJob::Undeliverable(undeliverable)) => {
                drop(beside);
                let Some(_room) = self.room(room, delivery).await else { return Ended::Stopped };
                return self.store(&self.undeliverable(delivery, Failure::undeliverable(undeliverable))).await;
            }
        };
        // Before the wait for a connection, and never in a lane: the delivery in front may run for as long as its
        // handler may.
        let has_turn = carried.keys.take(&self.key_locks, [(work.identity.handler, &work.identity.key)]);
        // The row is the intent of its external call.
        let stores_first = self.stores_first(delivery) || work.route.external.is_some();
        if !has_turn || stores_first || carried.charge.is_some() {
            // It does not run. The drop of a message is user code.
            dropped("a message", work.job.take());
        }
        if !has_turn {
            return Ended::Park(Wait::Key);
        }
        // Not kept during another wait: an orphaned row that waits for it would keep out those that this delivery waits for.
        let beside = (room.is_none() && !stores_first).then_some(beside);
        let Some(_room) = self.room(room, delivery).await else { return Ended::Stopped };
        if !self.outage.is_up() {
            // Nothing can be written, and it must not keep a lane meanwhile.
            return Ended::Park(Wait::Free);
        }
        let mut ended = match carried.charge.take() {
            Some(charge) => {
                drop(beside);
                Ended::Failed(*charge)
            }
            None if stores_first => self.store(&Entry::due(work.identity.clone(), delivery)).await,
            // The fast path of a first delivery: one transaction from claim to commit.
            None => {
                let beside = if beside.is_some() { beside } else { self.direct().await };
                let Some(beside) = beside else { return Ended::Stopped };
                let running = Running::new(Permit::Direct(beside));
                let ended = running.during(&self.outage, pin!(self.run_one(&mut work, &running))).await;
                // The drop of a message is user code.
                dropped("a message", work.job.take());
                ended
            }
        };
        if let Ended::Failed(failure) = ended {
            if failure.is_undeliverable() {
                return self.store(&self.undeliverable(delivery, failure)).await;
            }
            ended = self.store(&Entry::failed(work.identity.clone(), delivery, &failure)).await;
            if matches!(ended, Ended::Park(_)) {
                carried.charge = Some(Box::new(failure));
            }
        }
        match ended {
            // Only the existence of a claim is known: its row may be waiting.
            Ended::Done(outcome @ (Outcome::Scheduled { .. } | Outcome::Duplicate))
                if delivery.ordering_key.is_some() =>
            {
                // The database has accepted it.
                carried.refused = None;
                let row = InRow { identity: work.identity, outcome, span: Span::current() };
                Ended::Park(Wait::Row(Box::new(row)))
            }
            ended => ended,
        }
    }

    /// Stores a delivery for each of its handlers, and leaves the outcomes in `shares`. None of them runs it directly: if one
    /// failed, the delivery could neither be acked nor run again for that one only.
    ///
    /// If the codec of one of them has to prepare first, stores it for those whose keys are known, and leaves it to the
    /// preparation. Without its key there is no telling two messages apart, so it must not be stored for that one.
    async fn fan_out(&self, room: Option<&Semaphore>, delivery: &Delivery, carried: &mut Carried) -> Ended {
        let routes: Vec<_> = self.routes.takers(delivery).collect();
        let Some(beside) = self.direct().await else { return Ended::Stopped };
        let (mut entries, is_unprepared) = self.shares(delivery, &routes);
        drop(beside);
        if is_unprepared {
            // The undeliverable are written with the rest, so that they are counted once.
            entries.retain(|entry| entry.identity.has_key());
        }
        // In claim order, like a batch, so that no two deliveries wait for each other.
        let known = entries.iter().filter(|entry| entry.identity.has_key());
        if !carried.keys.take(&self.key_locks, known.map(|entry| (entry.identity.handler, &entry.identity.key))) {
            return Ended::Park(Wait::Key);
        }
        if entries.is_empty() {
            return Ended::Park(Wait::Codec);
        }
        let Some(_room) = self.room(room, delivery).await else { return Ended::Stopped };
        match self.store_shared(&entries).await {
            Ok(_) if is_unprepared => Ended::Park(Wait::Codec),
            Ok(Shared { outcomes, is_new }) => {
                carried.shares = outcomes;
                Ended::Done(if is_new { Outcome::stored() } else { Outcome::Duplicate })
            }
            Err(ended) => ended,
        }
    }

    /// Waits for the lock of what runs directly. `None` once the worker drains: another worker can have the delivery before an
    /// orphaned row of this one ends.
    async fn direct(&self) -> Option<Direct> {
        self.draining.run_until_cancelled(self.isolation_lock.direct()).await
    }

    /// Waits for permission to use one more connection. It comes from `room` if there is one. Otherwise only deliveries
    /// that are stored outside the lanes need a permit, since lanes have connections: redelivered messages without an
    /// order, and all messages with `.inbox()`. `None` if the worker drains before.
    async fn room<'a>(
        &'a self,
        room: Option<&'a Semaphore>,
        delivery: &Delivery,
    ) -> Option<Option<SemaphorePermit<'a>>> {
        let beside_lanes = self.settings.order == DeliveryOrder::None && self.stores_first(delivery);
        let Some(room) = room.or(beside_lanes.then_some(&self.single_stores)) else { return Some(None) };
        self.draining.run_until_cancelled(room.acquire()).await.map(Result::ok)
    }

    /// Whether a delivery is stored in the inbox before it runs: each one with `.inbox()`, otherwise one that the broker has
    /// delivered before, because a process may have died on it.
    fn stores_first(&self, delivery: &Delivery) -> bool {
        self.settings.inbox || delivery.redelivered()
    }
}
