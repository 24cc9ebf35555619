//! idem: the worker as a user configures it, with all settings except the concurrency at their defaults.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use idem::store::HasConnection;
use idem::{Source, Store, Worker};
use sqlx::PgConnection;

use crate::case::Work;
use crate::message::{order_counted, order_natural, order_paid, order_staged};
use crate::queue::{Deliveries, Queue};

const PATIENCE: Duration = Duration::from_secs(180);

/// Processes the messages; returns the messages per second.
pub(crate) async fn run<S>(store: &S, lanes: usize, work: Work, messages: Vec<Bytes>) -> Result<f64>
where
    S: Store + HasConnection<PgConnection>,
{
    let queue = Queue::new(messages);
    let worker = Worker::new("bench", store.clone(), Deliveries::of(queue.clone()));
    let worker = match work {
        Work::Fresh | Work::Duplicates => worker.handler::<order_paid>(),
        Work::Hot => worker.handler::<order_counted>(),
        Work::Staged => worker.handler::<order_staged>(),
    };
    drive(worker.concurrency(lanes), queue).await
}

/// Processes the messages with a natural handler; returns the messages per second.
pub(crate) async fn run_natural<S>(store: &S, lanes: usize, messages: Vec<Bytes>) -> Result<f64>
where
    S: Store + HasConnection<PgConnection>,
{
    let queue = Queue::new(messages);
    let worker = Worker::new("bench", store.clone(), Deliveries::of(queue.clone())).handler::<order_natural>();
    drive(worker.concurrency(lanes), queue).await
}

/// Runs the worker until the queue is empty.
pub(crate) async fn drive<S: Store, Src: Source>(worker: WithHandlers<S, Src>, queue: Queue) -> Result<f64> {
    let (emptied, left) = (queue.clone(), queue.clone());
    let worker = worker.run_until(async move { emptied.emptied().await });
    // A worker holds an unprocessable message forever; a measurement has to end.
    let ended = tokio::time::timeout(PATIENCE, worker).await;
    ended.with_context(|| format!("the worker left {} messages within {PATIENCE:?}", left.left()))??;
    queue.rate().context("the worker ended before its queue was empty")
}

pub(crate) type WithHandlers<S, Src> = Worker<S, Src, (), idem::codec::Json, idem::handler::WithHandlers>;
