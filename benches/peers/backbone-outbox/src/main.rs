//! backbone-outbox: `inbox::once` in the transaction of the consumer, as its documentation shows it.

use std::sync::Arc;

use anyhow::{Result, ensure};
use backbone_outbox::{inbox, outbox};
use peer_load::{EFFECT, EFFECTS, Load, OrderPaid};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const SCHEMA: &str = "idem_bench_peer";

#[tokio::main]
async fn main() -> Result<()> {
    let load = Load::from_args()?;
    let lanes = load.lanes as u32;
    let pool = PgPoolOptions::new().min_connections(lanes).max_connections(lanes).test_before_acquire(false);
    let pool = pool.connect(&load.url).await?;
    sqlx::query("CREATE SCHEMA IF NOT EXISTS idem_bench_peer").execute(&pool).await?;
    outbox::migrate(&pool, SCHEMA).await?;
    let pool = Arc::new(pool);
    let at = pool.clone();
    let clock = load.run(move |payload| process(at.clone(), payload)).await?;
    clock.print(sqlx::query_scalar(EFFECTS).fetch_one(&*pool).await?)
}

async fn process(pool: Arc<PgPool>, payload: Vec<u8>) -> Result<()> {
    let event: OrderPaid = serde_json::from_slice(&payload)?;
    let mut tx = pool.begin().await?;
    ensure!(inbox::once(&mut *tx, SCHEMA, "bench", event.event_id).await?, "a fresh message was a duplicate");
    sqlx::query(EFFECT).bind(event.order_id).bind(event.amount).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}
