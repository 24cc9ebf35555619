//! The process that is killed.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use idem::prelude::*;
use idem::{Source, handler::NoHandlers};
use sqlx::PgConnection;

use super::provider::Bank;
use crate::servers::DATABASE;
use crate::tables::SCHEMA;
use crate::worker::end_of_input;

/// The name of the consumer.
pub(super) const CONSUMER: &str = "payers";

/// How a handler calls the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum How {
    /// By an external call.
    Called,
    /// In its transaction, with a new key for each request.
    Naive,
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Order {
    pub(super) id: u64,
}

#[external(key_life = "24h", timeout = "2s")]
async fn charge(order: &Order, key: OutboundKey, State(bank): State<Bank>) -> Result<String, CallError> {
    match bank.charge(Some(key.as_str()), order.id).await? {
        (200, number) => Ok(number),
        (429, why) => Err(CallError::not_done(why)),
        (status, why) => Err(format!("the status {status}: {why}").into()),
    }
}

#[idempotent(key = id, name = "called", call = charge)]
async fn called(order: Order, Called(number): Called<String>, tx: &mut PgConnection) -> Result<(), BoxError> {
    write(&order, &number, tx).await
}

#[idempotent(key = id, name = "naive")]
async fn naive(order: Order, State(bank): State<Bank>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let (status, number) = bank.charge(None, order.id).await?;
    if status != 200 {
        return Err(format!("the status {status}").into());
    }
    write(&order, &number, tx).await
}

async fn write(order: &Order, number: &str, tx: &mut PgConnection) -> Result<(), BoxError> {
    let insert = sqlx::query("INSERT INTO demo.payments (id, charge) VALUES ($1, $2)");
    insert.bind(i64::try_from(order.id)?).bind(number).execute(tx).await?;
    Ok(())
}

/// Pays for the orders in the inbox until its standard input ends.
pub(crate) async fn pay(how: How, provider: SocketAddr) -> Result<()> {
    let database = std::env::var(DATABASE).with_context(|| format!("{DATABASE} is not set: run cargo xtask demo"))?;
    let store = Postgres::options(&database).schema(SCHEMA).connections(20).connect().await?;
    // Everything is in the inbox already.
    let worker = Worker::new(CONSUMER, store, idem_test::Broker::new().queue("orders")).state(Bank(provider));
    let mut over = end_of_input();
    let over = async move { drop(over.wait_for(|over| *over).await) };
    let worker = tune(worker);
    match how {
        How::Called => worker.handler::<called>().run_until(over).await?,
        How::Naive => worker.handler::<naive>().run_until(over).await?,
    }
    Ok(())
}

/// Sets short times, so that what takes minutes in production takes seconds here.
fn tune<Src: Source, C>(
    worker: Worker<Postgres, Src, Bank, C, NoHandlers>,
) -> Worker<Postgres, Src, Bank, C, NoHandlers> {
    let retry = RetryPolicy::new().max_attempts(3).min_delay(Duration::from_millis(100)).factor(2.0);
    worker
        .retry(retry)
        .calls(64)
        .inbox_concurrency(8)
        .handler_timeout(Duration::from_secs(5))
        .lease_duration(Duration::from_secs(1))
        .poll_interval(Duration::from_millis(200))
        .allow_unregistered_rows()
}
