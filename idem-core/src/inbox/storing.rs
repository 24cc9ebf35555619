//! Stores deliveries in batches: all of a worker with `.inbox()`, and the redelivered ones of any worker without an
//! order.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::runtime::{Arrival, Carried, Pipeline, Queue, at, extend_all};
use crate::{Acker, Delivery, Store};

use super::arrived::Arrived;

/// The maximum number of deliveries in a batch, and about the maximum number of bytes, since they are in memory twice
/// while they are sent.
const MOST: usize = 100;
const BYTES: usize = 4 * 1024 * 1024;

/// Stores deliveries until the queue is closed and empty. Then it releases those that wait for a batch, and finishes the
/// batches in progress.
///
/// A batch contains the deliveries that are there when a connection is free; it does not wait for more. A delivery that
/// needs other treatment (it is unfit, another process holds its key, its claim was removed meanwhile) leaves the batch
/// and is processed separately, so that it delays no other.
pub(crate) async fn store<S: Store, A: Acker>(pipeline: Arc<Pipeline<S>>, deliveries: Queue<Arrival<A>>) {
    let room = Arc::new(Semaphore::new(pipeline.settings.stored_at_once().batches));
    let (mut waiting, mut working) = (VecDeque::new(), JoinSet::new());
    loop {
        let extension = third_of_lease(&waiting);
        tokio::select! {
            biased;
            Some(ended) = working.join_next() => follow(&pipeline, ended, &mut working),
            received = deliveries.recv() => match received {
                Some((delivery, acker, _)) => waiting.push_back(Arrived::new(&pipeline, delivery, acker)),
                None => break,
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
        follow(&pipeline, ended, &mut working);
    }
}

/// Starts separate processing of the deliveries that a batch has left out.
fn follow<S: Store, A: Acker>(
    pipeline: &Arc<Pipeline<S>>,
    ended: Result<Vec<Arrived<A>>, JoinError>,
    working: &mut JoinSet<Vec<Arrived<A>>>,
) {
    // A task that panicked has already reported it.
    if let Ok(alone) = ended {
        alone.into_iter().for_each(|Arrived { delivery, acker, counted, .. }| {
            let pipeline = pipeline.clone();
            working.spawn(async move {
                pipeline.defect.task("storing", pipeline.deliver_beside(delivery, acker)).await;
                drop(counted);
                Vec::new()
            });
        });
    }
}

impl<S: Store> Pipeline<S> {
    /// Processes one delivery outside the lanes. It is unordered, since the inbox is rejected with an order: so it does
    /// not wait for a row, only while the database refuses it.
    async fn deliver_beside<A: Acker>(&self, mut delivery: Box<Delivery>, mut acker: A) {
        let mut carried = Carried::default();
        while let Some(waiting) = self.deliver(delivery, acker, carried).await {
            let Some(again) = self.wait(waiting).await else { return };
            (delivery, acker, carried) = again;
        }
    }
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
