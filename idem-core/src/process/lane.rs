//! The tasks that collect deliveries: lanes, which process them from start to settlement, one batch at a time, and the task
//! that stores deliveries in batches: all of a worker with `.inbox()`, and the redelivered ones of any worker without an order.
//! Here is also the decision which deliveries of a batch run, or are stored, together.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_util::stream::{self, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, Span};

use crate::caught::dropped;
use crate::park::{Arrival, Arrived, Carried, Parked};
use crate::routes::Route;
use crate::run::Work;
use crate::runtime::{Ended, Permit, Pipeline, Running, Wait};
use crate::take_over::Entry;
use crate::{Acker, Delivery, Store, telemetry};

/// The maximum number of deliveries that are stored together, and about the maximum number of bytes, since they are in memory
/// twice while they are sent.
const MOST: usize = 100;
const BYTES: usize = 4 * 1024 * 1024;

/// Takes deliveries until the queue is closed and empty. A lane is never dropped between start and settlement, except
/// at the end of the shutdown timeout.
pub(crate) async fn run<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Receiver<Arrival<A>>,
    parked: Sender<Parked<A>>,
) {
    let linger = pipeline.settings.linger;
    let mut taken = Vec::new();
    while collect(&deliveries, (pipeline.throttle.size(), usize::MAX), linger, &mut taken).await {
        deliver(&pipeline, &mut taken, None, None, &parked).await;
    }
}

/// Stores deliveries until the queue is closed and empty, and then finishes the batches in progress.
///
/// A batch contains the deliveries that are there when a connection is free; it does not wait for more. A delivery that was
/// held up before is processed by itself, so that it delays no other.
pub(crate) async fn store_batches<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Receiver<Arrival<A>>,
    parked: Sender<Parked<A>>,
) {
    let at_once = || Arc::new(Semaphore::new(pipeline.settings.stored_at_once()));
    // The connections for batches, and those for what is stored by itself.
    let (permits, slots) = (at_once(), at_once());
    let (mut taken, mut working) = (Vec::new(), JoinSet::new());
    let stored = |mut batch: Vec<Arrival<A>>, permit: Option<OwnedSemaphorePermit>| {
        let (pipeline, slots, parked) = (pipeline.clone(), slots.clone(), parked.clone());
        async move { deliver(&pipeline, &mut batch, Some(&slots), permit, &parked).await }
    };
    while let Ok(permit) = permits.clone().acquire_owned().await
        && collect(&deliveries, (MOST, BYTES), Duration::ZERO, &mut taken).await
    {
        let (alone, batch): (Vec<_>, Vec<_>) = taken.drain(..).partition(|arrival| arrival.carried.tries > 0);
        for arrival in alone {
            working.spawn(stored(vec![arrival], None));
        }
        if !batch.is_empty() {
            working.spawn(stored(batch, Some(permit)));
        }
        while working.try_join_next().is_some() {}
    }
    while working.join_next().await.is_some() {}
}

/// Processes these deliveries, one or a batch, which count as in flight meanwhile, and leaves `taken` empty. Outside the lanes:
/// `permit` is that to store a batch, and `slots` has those for what is stored by itself. Panics in user code are caught
/// elsewhere. After a panic here, the unsettled delivery is redelivered once the worker has ended.
async fn deliver<S: Store, A: Acker>(
    pipeline: &Pipeline<S>,
    taken: &mut Vec<Arrival<A>>,
    slots: Option<&Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    parked: &Sender<Parked<A>>,
) {
    let number = taken.len() as f64;
    pipeline.metrics.in_flight.increment(number);
    let delivered = pin!(async {
        if taken.len() > 1 || permit.is_some() {
            // Boxed: it is large, and a worker without batches would carry it unused.
            Box::pin(pipeline.deliver_all(std::mem::take(taken), slots, permit, parked)).await;
        } else if let Some(arrival) = taken.pop() {
            pipeline.deliver(slots, arrival, parked).await;
        }
    });
    pipeline.defect.task("lane", delivered).await;
    pipeline.metrics.in_flight.decrement(number);
}

/// Waits for one delivery, and takes all others that are available, up to about so many with so many bytes; with `linger`, also
/// those that arrive within that time. Returns `false` if the queue is closed and empty. Cancel safe: deliveries already taken
/// stay in `taken`.
async fn collect<A>(
    from: &Receiver<Arrival<A>>,
    (most, bytes): (usize, usize),
    linger: Duration,
    taken: &mut Vec<Arrival<A>>,
) -> bool {
    let Ok(first) = from.recv().await else { return false };
    let mut left = bytes.saturating_sub(first.delivery.payload().len());
    taken.push(first);
    while taken.len() < most
        && left > 0
        && let Ok(next) = from.try_recv()
    {
        left = left.saturating_sub(next.delivery.payload().len());
        taken.push(next);
    }
    if !linger.is_zero() {
        let until = Instant::now() + linger;
        while taken.len() < most
            && let Ok(Ok(next)) = timeout_at(until, from.recv()).await
        {
            taken.push(next);
        }
    }
    true
}

/// The deliveries of a batch that run, or are stored, together. Both are in claim order: two transactions that claim in the
/// same order cannot deadlock.
struct Admitted<'a, S: Store> {
    works: Vec<Work<'a, S>>,
    /// The indices in the batch of the duplicates of either, each with that of its first, whose result is its own.
    copies: Vec<(usize, usize)>,
    /// Those that are stored, without their messages.
    stored: Vec<Work<'a, S>>,
}

impl<S: Store> Pipeline<S> {
    /// Processes a batch: together those that can be, and then the others. Each is settled by its own result, parked at once if it
    /// cannot run now, or left to the broker if it is lost.
    async fn deliver_all<A: Acker>(
        &self,
        mut batch: Vec<Arrival<A>>,
        slots: Option<&Semaphore>,
        permit: Option<OwnedSemaphorePermit>,
        parked: &Sender<Parked<A>>,
    ) {
        batch.retain(|arrival| arrival.acker.is_live());
        let span = |arrival: &Arrival<A>| telemetry::span(self.system, &self.consumer, &arrival.delivery);
        let spans: Vec<Span> = batch.iter().map(span).collect();
        let parts = batch.iter_mut().map(|arrival| {
            let Arrived { delivery, carried, .. } = &mut **arrival;
            (&*delivery, carried)
        });
        let mut messages: Vec<_> = parts.collect();
        let ended = self.try_together(&mut messages, &spans).await;
        let (mut done, mut alone) = (Vec::new(), Vec::new());
        for ((arrival, ended), span) in batch.into_iter().zip(ended).zip(spans) {
            match ended {
                Ended::Again(_) => alone.push(arrival),
                ended => done.push((arrival, ended, span)),
            }
        }
        // The messages that run alone take turns on the connection of their lane, so that a batch of failures uses no more
        // connections than any other, and a message that is held up does not delay the others. Batches are rejected with an
        // order, so none of the deliveries waits for its row.
        let connection = Semaphore::new(1);
        let slots = Some(slots.unwrap_or(&connection));
        drop(permit);
        // Settled concurrently: a broker that confirms each ack confirms all of them in the time of one.
        let finish = async |(arrival, ended, span): (Arrival<A>, Ended, Span)| {
            self.finish(arrival, ended, parked).instrument(span).await;
        };
        stream::iter(done).for_each_concurrent(None, finish).await;
        let deliver = async |arrival: Arrival<A>| self.deliver(slots, arrival, parked).await;
        stream::iter(alone).for_each_concurrent(None, deliver).await;
    }

    /// Runs those that can run together, then stores those that can be stored together, and returns what became of each
    /// delivery; `Again` for those that are processed alone.
    async fn try_together(&self, batch: &mut [(&Delivery, &mut Carried)], spans: &[Span]) -> Vec<Ended> {
        let Some(beside) = self.direct().await.ok().filter(|_| self.outage.is_up()) else {
            // Nothing begins now, and a drain releases what is parked.
            return batch.iter().map(|_| Ended::Park(Wait::Free)).collect();
        };
        let running = Running::new(Permit::Direct(beside));
        let Admitted { works, copies, stored } = self.admit(batch, spans);
        let mut ended = running.during(&self.outage, pin!(self.run_together(works, batch.len(), &running))).await;
        // No orphaned row has to wait for what is stored.
        drop(running);
        let entries = stored.into_iter().map(|work| {
            let span = spans[work.at].clone();
            (work.at, Entry { span, ..Entry::due(work.identity, work.delivery) })
        });
        let (places, entries): (Vec<usize>, Vec<Entry<'_>>) = entries.unzip();
        if !entries.is_empty() {
            let stored = self.take_over_many(&entries).await;
            places.into_iter().zip(stored).for_each(|(place, stored)| ended[place] = stored);
        }
        for (copy, first) in &copies {
            ended[*copy] = ended[*first].of_another();
        }
        ended
    }

    /// Returns the deliveries that can run or be stored together, which have the turn of their keys. All others are processed
    /// alone: the undeliverable, those that the database has refused or held up before, those whose failure is not recorded yet,
    /// those that several handlers take, those of natural handlers that stage messages, those whose key is in flight elsewhere in
    /// this process, and a different message under a key of the batch.
    ///
    /// `spans`: one for each delivery.
    fn admit<'a, 'd: 'a>(&'a self, batch: &mut [(&'d Delivery, &mut Carried)], spans: &[Span]) -> Admitted<'a, S> {
        let mut fit = Vec::with_capacity(batch.len());
        for (at, &mut (delivery, ref mut carried)) in batch.iter_mut().enumerate() {
            let fits = carried.tries == 0 && carried.unrecorded.is_none() && !self.routes.are_several(delivery);
            if fits && let Ok(work) = spans[at].in_scope(|| self.decode(delivery)) {
                carried.identity = Some(work.identity.clone());
                fit.push(Work { at, ..work });
            }
        }
        // The sort is stable: the first of a key is the one that arrived first.
        fit.sort_by(|one, other| one.identity.sort_key().cmp(&other.identity.sort_key()));
        let (mut works, mut copies) = (Vec::<Work<'_, S>>::with_capacity(fit.len()), Vec::new());
        let mut stored = Vec::<Work<'_, S>>::new();
        for mut work in fit {
            let is_of_key = |first: &&Work<'_, S>| first.identity.sort_key() == work.identity.sort_key();
            let first = works.last().filter(is_of_key).or_else(|| stored.last().filter(is_of_key));
            if let Some(first) = first
                && first.identity.is_copy(work.identity.fingerprint)
            {
                copies.push((work.at, first.at));
                dropped("a message", work.job.take());
                continue;
            }
            let is_other = first.is_some();
            // With `.inbox()` there are no lanes, so none of its key runs.
            let (key, keys) = ((work.identity.handler, &work.identity.key), &mut batch[work.at].1.keys);
            let has_turn = !is_other && (self.settings.inbox || keys.take(&self.key_locks, [key]));
            let stores_first = self.stores_first(&work);
            if has_turn && !stores_first && may_share(work.route) {
                works.push(work);
                continue;
            }
            dropped("a message", work.job.take());
            match has_turn {
                true if stores_first => stored.push(work),
                true => {}
                // The delivery queues once it is processed alone: while it waited here, those behind it would wait for the batch.
                false => keys.clear(),
            }
        }
        Admitted { works, copies, stored }
    }
}

/// Returns whether a delivery of this handler may share a transaction. One that has no claim may run twice: if another
/// handler runs COMMIT, all messages without claims run again. A handler that then finds its own writes could leave out
/// what it has staged in the first run, which that COMMIT has not written.
fn may_share<S: Store>(route: &Route<S>) -> bool {
    !(route.is_unclaimed && route.handler.facts().stages)
}
