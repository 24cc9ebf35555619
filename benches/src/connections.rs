//! Three workers on one store, with fewer and fewer connections: the cost of waiting for one.

use std::time::Duration;

use anyhow::{Context, Result};
use idem::prelude::*;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

use crate::message::{self, OrderPaid, SCHEMA, order_paid};
use crate::queue::{Deliveries, Queue};
use crate::samples::median;

const ROUNDS: usize = 7;
const WORKERS: usize = 3;
const IN_FLIGHT: usize = 16;

/// As many as three workers with a concurrency of 16 can use, the default, and fewer.
const CONNECTIONS: [usize; 6] = [75, 32, 16, 8, 4, 2];

/// A handler that holds its connection for 10 ms, as one whose statements take that long.
#[idempotent(key = "event_id", name = "order_paid_slowly")]
async fn order_paid_slowly(event: OrderPaid, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    order_paid(event, tx).await
}

/// Prints the messages per second of each number of connections, and their ratio to the first.
pub(crate) async fn measure(url: &str, scale: f64) -> Result<()> {
    message::tables(&mut PgConnection::connect(url).await?).await?;
    println!("command     cargo xtask bench connections (release build)");
    println!("{WORKERS} workers on one store, {IN_FLIGHT} messages in flight each: median of {ROUNDS} rounds\n");
    println!("handler                connections   messages a second   ratio");
    for (label, slow, messages) in [("one INSERT", false, 1500.0), ("one INSERT after 10 ms", true, 500.0)] {
        let mut rates = [const { Vec::new() }; CONNECTIONS.len()];
        for round in 0..=ROUNDS {
            for (connections, rates) in CONNECTIONS.iter().zip(&mut rates) {
                let rate = run(url, *connections, slow, (messages * scale) as usize).await?;
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        for (connections, rate) in CONNECTIONS.iter().zip(&rates) {
            let ratio = median(rate.iter().zip(&rates[0]).map(|(rate, all)| rate / all).collect());
            println!("{label:22} {connections:>11} {:>19.0} {ratio:>7.2}", median(rate.clone()));
        }
    }
    Ok(())
}

/// Returns the messages per second of all workers together, without the first tenth of each queue.
async fn run(url: &str, connections: usize, slow: bool, messages: usize) -> Result<f64> {
    let store = Postgres::options(url).schema(SCHEMA).connections(connections).connect().await?;
    let mut workers = JoinSet::new();
    for n in 0..WORKERS {
        let queue = Queue::new(message::fresh(messages)?);
        let worker = Worker::new(format!("bench-{n}"), store.clone(), Deliveries::of(queue.clone()));
        let worker = if slow { worker.handler::<order_paid_slowly>() } else { worker.handler::<order_paid>() };
        workers.spawn(crate::worker::drive(worker.concurrency(IN_FLIGHT), queue));
    }
    let rates = workers.join_all().await.into_iter().collect::<Result<Vec<f64>>>().context("a worker failed")?;
    Ok(rates.iter().sum())
}
