//! `.inbox()` compared to the same worker without it: messages per second, and the time from storing a message to
//! starting its run.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use idem::adapter::SubscribeOptions;
use idem::{BoxError, Delivery, Outcome, Postgres, Source, Worker};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use sqlx::{Connection, PgConnection};
use tokio::sync::Notify;

use crate::message::{self, SCHEMA, order_paid};
use crate::queue::{Deliveries, Queue};
use crate::worker::WithHandlers;

const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures and prints the results. `scale` multiplies the number of messages.
pub(crate) async fn measure(url: &str, scale: f64) -> Result<()> {
    let mut conn = PgConnection::connect(url).await?;
    message::tables(&mut conn).await?;
    let store = Postgres::options(url).schema(SCHEMA).connections(64).connect().await?;
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    recorder.install().context("a recorder was installed before")?;

    println!(
        "messages a second, one INSERT in the handler: median of {ROUNDS} rounds; from stored to begun: p50 and p99"
    );
    for (in_flight, running) in [(16, 16), (100, 16), (400, 16)] {
        let messages = (4_000.0 * scale) as usize;
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..=ROUNDS {
            for (inbox, rates) in [false, true].into_iter().zip(&mut rates) {
                // Without the inbox, the same number of messages run concurrently as from the inbox.
                let prefetch = if inbox { in_flight } else { running };
                let rate = run(&store, inbox, (prefetch, running), messages, None).await?;
                if round > 0 {
                    rates.push(rate);
                } else {
                    waits(&snapshots);
                }
            }
        }
        let [direct, inbox] = rates.map(median);
        println!(
            "prefetch {in_flight:>3}, {running} at once: direct {direct:>5.0}, inbox {inbox:>5.0}, ratio {:.2}; {}",
            inbox / direct,
            waits(&snapshots),
        );
    }
    run(&store, true, (16, 16), (300.0 * scale) as usize, Some(Duration::from_millis(10))).await?;
    println!("a message each 10 ms: {}", waits(&snapshots));
    Ok(())
}

/// Processes the messages; returns how many were processed per second, without the first tenth.
async fn run(
    store: &Postgres,
    inbox: bool,
    (prefetch, running): (usize, usize),
    messages: usize,
    pace: Option<Duration>,
) -> Result<f64> {
    let source = Paced { within: Deliveries::of(Queue::new(message::fresh(messages)?)), pace };
    let worker = Worker::new("bench", store.clone(), source).handler::<order_paid>().concurrency(prefetch);
    processed(if inbox { worker.inbox().inbox_concurrency(running) } else { worker }, messages).await
}

/// Runs a worker until it has processed so many messages; returns how many it has processed per second, without the first
/// tenth.
async fn processed<Src: Source>(worker: WithHandlers<Postgres, Src>, messages: usize) -> Result<f64> {
    let started = Arc::new(OnceLock::new());
    let first = started.clone();
    let observe = move |processed: usize| {
        if processed == messages / 10 {
            first.get_or_init(Instant::now);
        }
    };
    let ended = until_processed(worker, messages, observe).await?;
    let started = *started.get().context("the worker ended before its messages were processed")?;
    Ok((messages - messages / 10) as f64 / (ended - started).as_secs_f64())
}

/// Runs a worker until it has processed so many messages; returns when the last one was processed. `observe` gets the number of
/// messages so far.
pub(crate) async fn until_processed<Src: Source>(
    worker: WithHandlers<Postgres, Src>,
    messages: usize,
    observe: impl Fn(usize) + Send + Sync + 'static,
) -> Result<Instant> {
    let (processed, ended, done) = (AtomicUsize::new(0), Arc::new(OnceLock::new()), Arc::new(Notify::new()));
    let (end, last) = (ended.clone(), done.clone());
    let worker = worker.observe(move |_: &Delivery, outcome: &Outcome| {
        if *outcome != Outcome::Processed {
            return;
        }
        let processed = processed.fetch_add(1, SeqCst) + 1;
        observe(processed);
        if processed == messages {
            end.get_or_init(Instant::now);
            last.notify_one();
        }
    });
    let worker = worker.run_until(async move { done.notified().await });
    tokio::time::timeout(PATIENCE, worker).await.context("the worker did not process its messages in time")??;
    ended.get().copied().context("the worker ended before its messages were processed")
}

/// Returns the waits since the last call, as text.
fn waits(snapshots: &Snapshotter) -> String {
    let mut waits = Vec::new();
    for (key, _, _, value) in snapshots.snapshot().into_vec() {
        if let ("idem_inbox_wait_seconds", DebugValue::Histogram(values)) = (key.key().name(), value) {
            waits.extend(values.into_iter().map(f64::from));
        }
    }
    waits.sort_by(f64::total_cmp);
    let at = |part: f64| waits.get((waits.len() as f64 * part) as usize).map_or(0.0, |seconds| seconds * 1000.0);
    format!("wait {:.1} ms and {:.1} ms, of {} rows", at(0.5), at(0.99), waits.len())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Limits the rate of deliveries.
struct Paced {
    within: Deliveries,
    pace: Option<Duration>,
}

impl Source for Paced {
    type Acker = <Deliveries as Source>::Acker;

    fn system(&self) -> &'static str {
        self.within.system()
    }

    fn name(&self) -> &str {
        self.within.name()
    }

    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        self.within.subscribe(options).await
    }

    async fn next(&mut self) -> Result<(Delivery, Self::Acker), BoxError> {
        if let Some(pace) = self.pace {
            tokio::time::sleep(pace).await;
        }
        self.within.next().await
    }

    async fn drain(&mut self) {
        self.within.drain().await;
    }

    async fn close(&mut self) {
        self.within.close().await;
    }
}
