//! idem: the worker as a user configures it, with all other settings at their defaults.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use idem::prelude::*;
use idem::{Batch, Outcome, Source, Store};
use sqlx::PgConnection;

use crate::case::Work;
use crate::message::{EFFECTS, IDEM, OrderPaid, order_natural, order_paid, order_staged};
use crate::queue::{Deliveries, Queue};

const PATIENCE: Duration = Duration::from_secs(180);

/// A handler that stores the same rows as `order_paid`, but all rows of a batch with one statement.
#[idempotent(key = "event_id", name = "order_paid")]
async fn orders_paid(events: Batch<OrderPaid>, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    let orders: Vec<i64> = events.iter().map(|event| event.order_id).collect();
    let amounts: Vec<i64> = events.iter().map(|event| event.amount).collect();
    sqlx::query(EFFECTS).bind(IDEM).bind(&orders).bind(&amounts).execute(tx).await?;
    Ok(())
}

/// Which handler a worker runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Handler {
    /// That of this work.
    Of(Work),
    /// The natural one.
    Natural,
    /// That of `Batch<M>`.
    Whole,
}

/// The settings of a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    pub(crate) lanes: usize,
    /// 1 for one message per transaction.
    pub(crate) batch: usize,
    pub(crate) handler: Handler,
    pub(crate) inbox: bool,
}

impl How {
    /// Returns a worker of new messages with these settings.
    pub(crate) fn worker<Src: Source>(self, store: &Postgres, source: Src) -> WithHandlers<Postgres, Src> {
        let worker = Worker::new("bench", store.clone(), source);
        let worker = match self.handler {
            Handler::Of(Work::Fresh | Work::Duplicates) => worker.handler::<order_paid>(),
            Handler::Of(Work::Staged) => worker.handler::<order_staged>(),
            Handler::Natural => worker.handler::<order_natural>(),
            Handler::Whole => worker.handler::<orders_paid>(),
        };
        let worker = worker.concurrency(self.lanes).batch(self.batch);
        if self.inbox { worker.inbox().inbox_concurrency(self.lanes) } else { worker }
    }

    /// Processes the messages from memory; returns the messages per second.
    pub(crate) async fn run(self, store: &Postgres, messages: Vec<Bytes>) -> Result<f64> {
        let queue = Queue::new(messages);
        if self.inbox {
            let worker = self.worker(store, Deliveries::uncounted(&queue));
            return drive(counted(worker, &queue), &queue).await;
        }
        drive(self.worker(store, Deliveries::of(&queue)), &queue).await
    }
}

/// Lets the queue count each message once, when it has run: one that was stored in the inbox then, and a copy, as after a
/// rebalance of Kafka, not at all.
pub(crate) fn counted<S: Store, Src: Source>(worker: WithHandlers<S, Src>, queue: &Queue) -> WithHandlers<S, Src> {
    let queue = queue.clone();
    worker.observe(move |observed| match observed.outcome {
        Outcome::Scheduled { .. } => queue.store(),
        Outcome::Processed => queue.ack(),
        _ => {}
    })
}

/// Runs the worker until the queue is empty; returns the messages per second.
pub(crate) async fn drive<S: Store, Src: Source>(worker: WithHandlers<S, Src>, queue: &Queue) -> Result<f64> {
    let emptied = queue.clone();
    let worker = worker.run_until(async move { emptied.emptied().await });
    // A worker holds an unprocessable message forever; a measurement has to end.
    let ended = tokio::time::timeout(PATIENCE, worker).await;
    ended.with_context(|| format!("the worker left {} messages within {PATIENCE:?}", queue.left()))??;
    queue.rate()
}

pub(crate) type WithHandlers<S, Src> = Worker<S, Src, (), idem::codec::Json, idem::handler::WithHandlers>;
