//! Stores deliveries in batches: all of a worker with `.inbox()`, and the redelivered ones of any worker without an
//! order.

use std::collections::VecDeque;
use std::sync::Arc;

use async_channel::{Receiver, Sender};
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::park::{Arrival, Carried, Parked};
use crate::runtime::{Pipeline, at, extend_all};
use crate::{Acker, Delivery, Store};

/// The maximum number of deliveries in a batch, and about the maximum number of bytes, since they are in memory twice
/// while they are sent.
const MOST: usize = 100;
const BYTES: usize = 4 * 1024 * 1024;

/// Stores deliveries until the queue is closed and empty. Then it releases those that wait for a batch, and finishes the
/// batches in progress.
///
/// A batch contains the deliveries that are there when a connection is free; it does not wait for more. A delivery that
/// needs other treatment (it is unfit, another process holds its key, its claim was removed meanwhile) leaves the batch
/// and is processed separately, so that it delays no other; so is one that was parked.
pub(crate) async fn store<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Receiver<Arrival<A>>,
    parked: Sender<Parked<A>>,
) {
    let room = Arc::new(Semaphore::new(pipeline.settings.stored_at_once().batches));
    let (mut waiting, mut working) = (VecDeque::new(), JoinSet::new());
    loop {
        let extension = third_of_lease(&waiting);
        tokio::select! {
            biased;
            Some(ended) = working.join_next() => follow(&pipeline, ended, &parked, &mut working),
            received = deliveries.recv() => match received {
                Ok(Arrival { delivery, acker, carried }) => {
                    let arrived = Arrived::new(&pipeline, delivery, acker);
                    match carried.was_parked {
                        true => alone(&pipeline, arrived, carried, &parked, &mut working),
                        false => waiting.push_back(arrived),
                    }
                }
                Err(_) => break,
            },
            () = at(extension) => extend(&mut waiting).await,
            Ok(room) = room.clone().acquire_owned(), if !waiting.is_empty() => {
                let (pipeline, batch) = (pipeline.clone(), next(&mut waiting));
                working.spawn(async move {
                    let stored = pipeline.defect.task("storing", pipeline.store_batch(batch, room)).await;
                    stored.unwrap_or_default()
                });
            }
        }
    }
    join_all(waiting.into_iter().map(|arrived| pipeline.release(arrived.acker))).await;
    while let Some(ended) = working.join_next().await {
        follow(&pipeline, ended, &parked, &mut working);
    }
}

/// Starts separate processing of the deliveries that a batch has left out.
fn follow<S: Store, A: Acker>(
    pipeline: &Arc<Pipeline<S>>,
    ended: Result<Vec<Arrived<A>>, JoinError>,
    parked: &Sender<Parked<A>>,
    working: &mut JoinSet<Vec<Arrived<A>>>,
) {
    // A task that panicked has already reported it.
    for arrived in ended.unwrap_or_default() {
        alone(pipeline, arrived, Carried::default(), parked, working);
    }
}

/// Processes one delivery outside the lanes.
fn alone<S: Store, A: Acker>(
    pipeline: &Arc<Pipeline<S>>,
    Arrived { delivery, acker, counted, .. }: Arrived<A>,
    carried: Carried,
    parked: &Sender<Parked<A>>,
    working: &mut JoinSet<Vec<Arrived<A>>>,
) {
    let (pipeline, parked) = (pipeline.clone(), parked.clone());
    working.spawn(async move {
        let deliver = async {
            if let Some(delivery) = pipeline.deliver(None, Arrival { delivery, acker, carried }).await {
                pipeline.park(delivery, &parked).await;
            }
        };
        pipeline.defect.task("storing", deliver).await;
        drop(counted);
        Vec::new()
    });
}

/// Takes the next batch.
fn next<A>(waiting: &mut VecDeque<Arrived<A>>) -> Vec<Arrived<A>> {
    let mut bytes = 0;
    let mut fits = |arrived: &Arrived<A>| {
        bytes += arrived.delivery.payload().len();
        bytes <= BYTES
    };
    let number = waiting.iter().take(MOST).take_while(|arrived| fits(arrived)).count();
    waiting.drain(..number.max(1)).collect()
}

/// Returns when a third of the lease of the first waiting delivery has elapsed.
fn third_of_lease<A: Acker>(waiting: &VecDeque<Arrived<A>>) -> Option<Instant> {
    let first = waiting.front()?;
    Some(first.since + first.acker.lease()? / 3)
}

async fn extend<A: Acker>(waiting: &mut VecDeque<Arrived<A>>) {
    extend_all(waiting.iter_mut().map(|arrived| &mut arrived.acker)).await;
    waiting.iter_mut().for_each(|arrived| arrived.since = Instant::now());
}

/// A delivery to be stored.
pub(super) struct Arrived<A> {
    pub(super) delivery: Box<Delivery>,
    pub(super) acker: A,
    /// When its lease began.
    pub(super) since: Instant,
    pub(super) counted: Counted,
}

impl<A> Arrived<A> {
    pub(super) fn new<S: Store>(pipeline: &Pipeline<S>, delivery: Box<Delivery>, acker: A) -> Self {
        Self::again(delivery, acker, Counted::new(&pipeline.metrics.in_flight))
    }

    /// Wraps a delivery that comes back from a batch.
    pub(super) fn again(delivery: Box<Delivery>, acker: A, counted: Counted) -> Self {
        Self { delivery, acker, since: Instant::now(), counted }
    }
}

/// Counts a delivery as in flight for as long as it lives.
pub(super) struct Counted(metrics::Gauge);

impl Counted {
    pub(super) fn new(in_flight: &metrics::Gauge) -> Self {
        in_flight.increment(1);
        Self(in_flight.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}
