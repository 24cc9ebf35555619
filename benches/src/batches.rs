//! D and E: idem in batches, with the unchanged handler and with a batch handler.

use anyhow::Result;
use bytes::Bytes;
use idem::Batch;
use idem::prelude::*;
use sqlx::PgConnection;

use crate::case::Work;
use crate::message::{IDEM, OrderPaid, order_counted, order_paid, order_staged};
use crate::queue::{Deliveries, Queue};
use crate::worker;

/// A handler that stores the same rows as `order_paid`, but all rows of a batch with one statement.
#[idempotent(key = "event_id", name = "order_paid")]
async fn orders_paid(events: Batch<OrderPaid>, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let orders: Vec<i64> = events.iter().map(|event| event.order_id).collect();
    let amounts: Vec<i64> = events.iter().map(|event| event.amount).collect();
    sqlx::query(crate::raw::WRITE).bind(IDEM).bind(&orders).bind(&amounts).execute(tx).await?;
    Ok(())
}

/// Processes the messages with this many concurrent batches and the single-message handler; returns the messages per
/// second.
pub(crate) async fn run(store: &Postgres, lanes: usize, batch: usize, work: Work, messages: Vec<Bytes>) -> Result<f64> {
    let queue = Queue::new(messages);
    let worker = Worker::new("bench", store.clone(), Deliveries::of(queue.clone()));
    let worker = match work {
        Work::Fresh | Work::Duplicates => worker.handler::<order_paid>(),
        Work::Hot => worker.handler::<order_counted>(),
        Work::Staged => worker.handler::<order_staged>(),
    };
    worker::drive(worker.concurrency(lanes).batch(batch), queue).await
}

/// The same with the batch handler.
pub(crate) async fn run_batch_handler(
    store: &Postgres,
    lanes: usize,
    batch: usize,
    messages: Vec<Bytes>,
) -> Result<f64> {
    let queue = Queue::new(messages);
    let worker = Worker::new("bench", store.clone(), Deliveries::of(queue.clone())).handler::<orders_paid>();
    worker::drive(worker.concurrency(lanes).batch(batch), queue).await
}
