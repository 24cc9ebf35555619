//! idem: the worker as a user configures it, with all other settings at their defaults; from memory, and from a broker, behind a
//! warm-up. A worker on Kafka stores the first messages of each partition, and does work then that the other sides do not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use idem::prelude::*;
use idem::{Batch, BoxError, Delivery, Outcome, Postgres, Source, Store};
use idem_brokers::Broker as Client;
use idem_test::Tapped;
use idem_test::tap::Tap;
use sqlx::PgConnection;
use tokio::sync::watch;

use crate::machine::cpu;
use crate::message::{EFFECTS, IDEM, OrderPaid, order_natural, order_paid, order_staged};
use crate::plan::Work;
use crate::queue::{Deliveries, Queue};
use crate::samples::Sample;
use crate::sqs;
use crate::tables::log;

pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

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

    /// Processes the messages from a broker while the gate is open; returns the messages per second.
    pub(crate) async fn run_from(
        self,
        store: &Postgres,
        source: impl Source,
        queue: Queue,
        gate: watch::Receiver<bool>,
    ) -> Result<f64> {
        let worker = self.worker(store, Tapped::new(source, Gate(gate)));
        drive(counted(worker, &queue), &queue).await
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

/// The name of the queue, stream or topic.
pub(crate) const NAME: &str = "idem-bench";

/// Takes deliveries while it is open. It is closed from the end of the warm-up until all other messages are published. It
/// does not count: a rebalance in the warm-up brings some messages twice.
struct Gate(watch::Receiver<bool>);

impl Gate {
    async fn wait_for(&mut self, open: bool) -> Result<(), BoxError> {
        self.0.wait_for(|is_open| *is_open == open).await?;
        Ok(())
    }
}

impl Tap for Gate {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }

    async fn next<S: Source>(&mut self, source: &mut S) -> Result<(Delivery, S::Acker), BoxError> {
        loop {
            self.wait_for(true).await?;
            tokio::select! {
                biased;
                closed = self.wait_for(false) => closed?,
                next = source.next() => return next,
            }
        }
    }
}

/// Runs a side, which has a queue to count by and a gate, and measures the messages behind a warm-up of this many. They are
/// published when all of the warm-up is processed, and that is not measured.
pub(crate) async fn steady<B: Client>(
    address: &str,
    (messages, warm_up): (Vec<Bytes>, usize),
    conn: &mut PgConnection,
    side: impl AsyncFnOnce(Queue, watch::Receiver<bool>) -> Result<f64>,
) -> Result<Sample> {
    let payloads: Vec<Vec<u8>> = messages.iter().map(|payload| payload.to_vec()).collect();
    let (first, rest) = payloads.split_at(warm_up.min(payloads.len()));
    ensure!(!rest.is_empty(), "{} messages leave none to measure behind a warm-up of {warm_up}", payloads.len());
    let client = B::connect(address, NAME).await?;
    client.create().await?;
    client.publish(first).await?;
    let queue = Queue::pausing_after(messages, first.len());
    let (open, gate) = watch::channel(true);
    let side = side(queue.clone(), gate);
    let begin = async {
        queue.paused().await;
        open.send_replace(false);
        client.publish(rest).await?;
        let before = (log(conn).await?, cpu(false)?, queue.stored(), sqs::requests());
        queue.go_on();
        open.send_replace(true);
        anyhow::Ok(before)
    };
    let (rate, (log_before, cpu_before, stored, asked_before)) = tokio::try_join!(side, begin)?;
    let asked = sqs::requests();
    let (time, log) = (cpu(false)?.saturating_sub(cpu_before), log(conn).await? - log_before);
    let late = queue.stored() - stored;
    ensure!(late == 0, "{late} measured messages were stored first: the group was rebalanced");
    client.delete().await?;
    let count = rest.len() as f64;
    let requests = std::array::from_fn(|action| (asked[action] - asked_before[action]) * 1e3 / count);
    Ok(Sample { rate, client: time.as_secs_f64() * 1e6 / count, wal: log / count, requests })
}
