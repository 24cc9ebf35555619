//! Stores deliveries in batches: all of a worker with `.inbox()`, and the redelivered ones of any worker without an
//! order.

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use futures_util::future::join;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::park::{Arrival, Parked};
use crate::runtime::{Pipeline, extended};
use crate::{Acker, Store};

/// The maximum number of deliveries in a batch, and about the maximum number of bytes, since they are in memory twice
/// while they are sent.
const MOST: usize = 100;
const BYTES: usize = 4 * 1024 * 1024;

/// Stores deliveries until the queue is closed and empty, and finishes the batches in progress.
///
/// A batch contains the deliveries that are there when a connection is free; it does not wait for more. A delivery that
/// needs other treatment (it is unfit, another process holds its key, its claim was removed meanwhile, the database is
/// away) leaves the batch and is processed separately, so that it delays no other; so is one that was parked.
pub(crate) async fn store<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    deliveries: Receiver<Arrival<A>>,
    parked: Sender<Parked<A>>,
) {
    let room = Arc::new(Semaphore::new(pipeline.settings.stored_at_once().batches));
    let mut working = JoinSet::new();
    while let Some((batch, room)) = collect(&pipeline, &deliveries, &room).await {
        while working.try_join_next().is_some() {}
        let (pipeline, parked) = (pipeline.clone(), parked.clone());
        working.spawn(async move {
            let number = batch.len() as f64;
            pipeline.metrics.in_flight.increment(number);
            // What was parked waits for no batch. Without a permit the worker drains, and each delivery is released.
            let is_alone = |arrival: &Arrival<A>| arrival.carried.was_parked || room.is_none();
            let (alone, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_alone);
            let stored = async {
                if let Some(room) = room
                    && !batch.is_empty()
                {
                    let left_out = pipeline.store_batch(batch, room).await;
                    pipeline.deliver_each(None, left_out, &parked).await;
                }
            };
            pipeline.defect.task("storing", join(pipeline.deliver_each(None, alone, &parked), stored)).await;
            pipeline.metrics.in_flight.decrement(number);
        });
    }
    while working.join_next().await.is_some() {}
}

/// Takes deliveries until they fill a batch or one more batch may be stored, and keeps their leases meanwhile. `None` once
/// the queue is closed and empty. When the worker drains, they have no permit, since none of them is stored.
async fn collect<S: Store, A: Acker>(
    pipeline: &Pipeline<S>,
    deliveries: &Receiver<Arrival<A>>,
    room: &Arc<Semaphore>,
) -> Option<(Vec<Arrival<A>>, Option<OwnedSemaphorePermit>)> {
    let first = deliveries.recv().await.ok()?;
    let (mut bytes, mut batch) = (first.delivery.payload().len(), vec![first]);
    loop {
        let fits = batch.len() < MOST && bytes < BYTES;
        tokio::select! {
            biased;
            () = pipeline.draining.cancelled() => return Some((batch, None)),
            Ok(next) = deliveries.recv(), if fits => {
                bytes += next.delivery.payload().len();
                batch.push(next);
            }
            room = async {
                let mut ackers: Vec<&mut A> = batch.iter_mut().map(|arrival| &mut arrival.acker).collect();
                extended(&mut ackers, room.clone().acquire_owned()).await
            } => return Some((batch, room.ok())),
        }
    }
}
