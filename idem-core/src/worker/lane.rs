//! The tasks that collect deliveries: lanes, which process them from start to settlement, one batch at a time, and the task
//! that stores deliveries in batches: all of a worker with `.inbox()`, and the redelivered ones of any worker without an order.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::park::{Arrival, Parked};
use crate::runtime::Pipeline;
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
    while collect(&deliveries, (pipeline.throttle.size(), usize::MAX), linger, &mut taken).await {
        deliver(&pipeline, &mut taken, None, &parked).await;
    }
}

/// Stores deliveries until the queue is closed and empty, and then finishes the batches in progress.
///
/// A batch contains the deliveries that are there when a connection is free; it does not wait for more. A delivery that was
/// held up before is processed by itself, so that it delays no other.
pub(crate) async fn store<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Receiver<Arrival<A>>,
    parked: Sender<Parked<A>>,
) {
    let permits = Arc::new(Semaphore::new(pipeline.settings.stored_at_once()));
    let (mut taken, mut working) = (Vec::new(), JoinSet::new());
    let stored = |mut batch: Vec<Arrival<A>>, permit: Option<OwnedSemaphorePermit>| {
        let (pipeline, parked) = (pipeline.clone(), parked.clone());
        async move { deliver(&pipeline, &mut batch, permit, &parked).await }
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
