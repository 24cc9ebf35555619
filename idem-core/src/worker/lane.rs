//! The tasks that collect deliveries: lanes, which process them from start to settlement, one batch at a time, and the task
//! that stores deliveries in batches: all of a worker with `.inbox()`, and the redelivered ones of any worker without an order.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_util::future::join_all;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::park::{Arrival, Parked};
use crate::runtime::{LOOKS, Pipeline, at, extend_all};
use crate::{Acker, Store};

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
    while collect(&deliveries, pipeline.throttle.size(), linger, &mut taken).await {
        deliver(&pipeline, &mut taken, None, &parked).await;
    }
}

/// Stores deliveries until the queue is closed and empty. Then it releases those that wait for a batch, and finishes the
/// batches in progress.
///
/// A batch contains the deliveries that are there when a connection is free; it does not wait for more. A delivery that was
/// held up before is processed by itself at once, so that it delays no other. One that has its turn of a key goes into the next
/// batch, because others of the key may wait for it.
pub(crate) async fn store<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Receiver<Arrival<A>>,
    parked: Sender<Parked<A>>,
) {
    let permits = Arc::new(Semaphore::new(pipeline.settings.stored_at_once().batches));
    let (mut waiting, mut looked, mut working) = (VecDeque::<Arrival<A>>::new(), Instant::now(), JoinSet::new());
    let stored = |mut batch: Vec<Arrival<A>>, permit: Option<OwnedSemaphorePermit>| {
        let (pipeline, parked) = (pipeline.clone(), parked.clone());
        async move { deliver(&pipeline, &mut batch, permit, &parked).await }
    };
    loop {
        let beat = waiting.front().and_then(|first| Some(first.acker.lease()? / LOOKS));
        tokio::select! {
            biased;
            Some(_) = working.join_next() => {}
            received = deliveries.recv() => match received {
                Ok(arrival) if arrival.carried.tries > 0 => drop(working.spawn(stored(vec![arrival], None))),
                Ok(arrival) if !arrival.carried.keys.is_empty() => waiting.push_front(arrival),
                Ok(arrival) => waiting.push_back(arrival),
                Err(_) => break,
            },
            () = at(beat.map(|beat| looked + beat)) => {
                let extended = extend_all(waiting.iter_mut().map(|arrival| &mut arrival.acker));
                // A client that never answers must not keep all others from being stored.
                let _ = timeout(beat.unwrap_or_default(), extended).await;
                looked = Instant::now();
            }
            Ok(permit) = permits.clone().acquire_owned(), if !waiting.is_empty() => {
                working.spawn(stored(next(&mut waiting), Some(permit)));
            }
        }
    }
    join_all(waiting.into_iter().map(|arrival| pipeline.release(arrival.acker))).await;
    while working.join_next().await.is_some() {}
}

/// Processes these deliveries, which count as in flight meanwhile. Panics in user code are caught elsewhere. After a panic
/// here, the unsettled delivery is redelivered once the worker has ended.
async fn deliver<S: Store, A: Acker>(
    pipeline: &Pipeline<S>,
    taken: &mut Vec<Arrival<A>>,
    permit: Option<OwnedSemaphorePermit>,
    parked: &Sender<Parked<A>>,
) {
    let number = taken.len() as f64;
    pipeline.metrics.in_flight.increment(number);
    pipeline.defect.task("lane", pin!(pipeline.deliver_some(taken, permit, parked))).await;
    pipeline.metrics.in_flight.decrement(number);
}

/// Waits for one item, and takes all others that are available, up to `limit`; with `linger`, also those that arrive
/// within that time. Returns `false` if the queue is closed and empty. Cancel safe: items already taken stay in
/// `taken`.
async fn collect<T>(from: &Receiver<T>, limit: usize, linger: Duration, taken: &mut Vec<T>) -> bool {
    let Ok(first) = from.recv().await else { return false };
    taken.push(first);
    while taken.len() < limit
        && let Ok(next) = from.try_recv()
    {
        taken.push(next);
    }
    if !linger.is_zero() {
        let until = Instant::now() + linger;
        while taken.len() < limit
            && let Ok(Ok(next)) = timeout_at(until, from.recv()).await
        {
            taken.push(next);
        }
    }
    true
}

/// Takes the next batch to be stored.
fn next<A>(waiting: &mut VecDeque<Arrival<A>>) -> Vec<Arrival<A>> {
    let mut bytes = 0;
    let mut fits = |arrival: &Arrival<A>| {
        bytes += arrival.delivery.payload().len();
        bytes <= BYTES
    };
    let number = waiting.iter().take(MOST).take_while(|arrival| fits(arrival)).count();
    waiting.drain(..number.max(1)).collect()
}
