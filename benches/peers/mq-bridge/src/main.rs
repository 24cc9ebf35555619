//! mq-bridge: a route whose input is deduplicated by a table in PostgreSQL, with a handler that inserts the row.
//!
//! It cannot do the same work: its claim, the handler's row and its mark are three separate commits, so a crash between
//! the last two repeats the handler's row, as its documentation says (docs/DELIVERY.md). Measured all the same, with
//! one message at a time in as many workers as there are lanes.

use anyhow::{Context, Result};
use mq_bridge::endpoints::memory::get_or_create_channel;
use mq_bridge::models::MemoryConfig;
use mq_bridge::sqlx::postgres::PgPoolOptions;
use mq_bridge::sqlx::{self, PgPool};
use mq_bridge::{CanonicalMessage, Handled, HandlerError, Route};
use peer_load::{Clock, EFFECT, EFFECTS, Load, OrderPaid};
use serde_json::json;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<()> {
    let load = Load::from_args()?;
    let lanes = load.lanes as u32;
    let pool = PgPoolOptions::new().min_connections(lanes).max_connections(lanes).test_before_acquire(false);
    let pool = pool.connect(&load.url).await?;
    sqlx::raw_sql("CREATE SCHEMA IF NOT EXISTS idem_bench_peer").execute(&pool).await?;
    let store = format!("{}/idem_bench_peer.dedup", load.url);
    let route = json!({
        "input": {
            "middlewares": [{ "deduplication": { "store": store, "ttl_seconds": 86400, "key": "${payload:event_id}" } }],
            "memory": { "topic": "orders", "capacity": load.messages },
        },
        "output": "null",
        "concurrency": load.lanes,
        "batch_size": 1,
    });
    let config: MemoryConfig = serde_json::from_value(json!({ "topic": "orders", "capacity": load.messages }))?;
    let channel = get_or_create_channel(&config);
    for payload in load.payloads()? {
        channel.send_message(CanonicalMessage::new(payload, None)).await?;
    }
    let clock = Clock::new(load.messages);
    let (last, mut ended) = mpsc::channel(1);
    let (rows, at) = (pool.clone(), clock.clone());
    let route: Route = serde_json::from_value(route)?;
    let route = route.with_handler(move |message: CanonicalMessage| {
        let (rows, at, last) = (rows.clone(), at.clone(), last.clone());
        async move {
            insert(&rows, &message).await.map_err(HandlerError::NonRetryable)?;
            if at.done() {
                let _ = last.send(()).await;
            }
            Ok(Handled::Ack)
        }
    });
    route.deploy("orders").await?;
    ended.recv().await.context("the route ended")?;
    Route::stop("orders").await;
    clock.print(sqlx::query_scalar(EFFECTS).fetch_one(&pool).await?)
}

async fn insert(pool: &PgPool, message: &CanonicalMessage) -> Result<()> {
    let event: OrderPaid = serde_json::from_slice(&message.payload)?;
    sqlx::query(EFFECT).bind(event.order_id).bind(event.amount).execute(pool).await?;
    Ok(())
}
