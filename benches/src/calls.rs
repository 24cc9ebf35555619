//! External calls: how many messages per second a worker with few connections processes, whose calls take a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use idem::prelude::*;
use sqlx::{Connection, PgConnection};

use crate::message::{self, EFFECT, IDEM, OrderPaid, SCHEMA};
use crate::queue::{Deliveries, Queue};
use crate::samples::{median, range};
use crate::worker;

const ROUNDS: usize = 5;
const MESSAGES: usize = 10_000;

/// How many calls are made at once, and how long each takes: no worker makes more of them per second than these allow.
const AT_ONCE: usize = 100;
const LATENCY: Duration = Duration::from_millis(50);

/// Fewer than calls: a call holds none.
const CONNECTIONS: usize = 20;

/// The part of the possible rate that has to be reached.
const TARGET: f64 = 0.9;

/// When the first call of a round began.
static FIRST: Mutex<Option<Instant>> = Mutex::new(None);

fn first() -> MutexGuard<'static, Option<Instant>> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A provider that takes its time.
#[external(key_life = "24h", timeout = "20s")]
async fn pay(_: &OrderPaid, _: OutboundKey) -> Result<u64, CallError> {
    first().get_or_insert_with(Instant::now);
    tokio::time::sleep(LATENCY).await;
    Ok(7)
}

#[idempotent(key = "event_id", name = "order_called", call = pay)]
async fn order_called(event: OrderPaid, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(EFFECT).bind(IDEM).bind(event.order_id).bind(event.amount).execute(tx).await?;
    Ok(())
}

/// Measures and prints the result, and returns 0 if the target is reached, else 1.
pub(crate) async fn measure(url: &str) -> Result<u8> {
    let mut conn = PgConnection::connect(url).await?;
    message::tables(&mut conn).await?;
    let store = Postgres::options(url).schema(SCHEMA).connections(CONNECTIONS).connect().await?;
    let mut rates = Vec::new();
    // The first round warms up.
    for _ in 0..=ROUNDS {
        rates.push(run(&store).await?);
    }
    let rates = rates.split_off(1);
    let (rate, possible) = (median(rates.clone()), AT_ONCE as f64 / LATENCY.as_secs_f64());
    let (low, high) = range(rates.iter().copied());
    println!(
        "{AT_ONCE} calls of {LATENCY:?} at once, {CONNECTIONS} connections: {rate:.0} messages a second, median of {ROUNDS} rounds \
         ({low:.0} to {high:.0}); of the possible {possible:.0} that is {:.2}, and the target {TARGET}",
        rate / possible
    );
    Ok(u8::from(rate / possible < TARGET))
}

/// Stores, calls for and completes the messages; returns how many per second, from the first call to the last completion. Calls
/// may run ahead of completions, and none is left out.
async fn run(store: &Postgres) -> Result<f64> {
    let queue = Queue::new(message::fresh(MESSAGES)?);
    let source = Deliveries::uncounted(&queue);
    let worker = Worker::new("bench", store.clone(), source).handler::<order_called>().concurrency(AT_ONCE);
    let worker = worker.inbox().inbox_concurrency(16).call_concurrency(AT_ONCE);
    *first() = None;
    worker::drive(worker::counted(worker, &queue), &queue).await?;
    let (began, ended) = (*first(), queue.emptied_at());
    let (began, ended) = began.zip(ended).context("no call has begun")?;
    Ok(MESSAGES as f64 / (ended - began).as_secs_f64())
}
