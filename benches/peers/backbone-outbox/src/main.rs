//! backbone-outbox: `inbox::once` in the transaction of the consumer, as its documentation shows it.
//!
//! `peer-backbone-outbox LANES MESSAGES` works on the database in `DATABASE_URL`, where the benchmark has created the table
//! `idem_bench.effects`, and prints the messages per second and the rows that its handler has made.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use backbone_outbox::{inbox, outbox};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;
use uuid::Uuid;

const SCHEMA: &str = "idem_bench_peer";

/// The one statement of a handler, as on all other sides of the benchmark. Its `side` stands for a peer.
const EFFECT: &str = "INSERT INTO idem_bench.effects (side, order_id, amount) VALUES (4, $1, $2)";

/// 97 bytes of JSON, about.
#[derive(Serialize, Deserialize)]
struct OrderPaid {
    event_id: Uuid,
    order_id: i64,
    amount: i64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = || -> Result<usize> { Ok(args.next().context("LANES and MESSAGES are missing")?.parse()?) };
    let (lanes, messages) = (number()?, number()?);
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    let open = lanes as u32;
    let pool = PgPoolOptions::new().min_connections(open).max_connections(open).test_before_acquire(false);
    let pool = pool.connect(&url).await?;
    sqlx::query("CREATE SCHEMA IF NOT EXISTS idem_bench_peer").execute(&pool).await?;
    outbox::migrate(&pool, SCHEMA).await?;

    let message = |n: usize| OrderPaid { event_id: Uuid::new_v4(), order_id: n as i64, amount: 4990 };
    let payloads = (0..messages).map(|n| serde_json::to_vec(&message(n))).collect::<Result<VecDeque<_>, _>>()?;
    let (waiting, done) = (Arc::new(Mutex::new(payloads)), Arc::new(AtomicUsize::new(0)));
    let started = Arc::new(OnceLock::new());
    let mut tasks = JoinSet::new();
    for _ in 0..lanes {
        let (pool, waiting, done, started) = (pool.clone(), waiting.clone(), done.clone(), started.clone());
        tasks.spawn(async move {
            let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            while let Some(payload) = next() {
                process(&pool, &payload).await?;
                // As on the other sides, the clock starts after a tenth of the messages.
                if done.fetch_add(1, SeqCst) == messages / 10 {
                    started.get_or_init(Instant::now);
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let took = started.get().context("no message was processed")?.elapsed();
    let rate = (messages - messages / 10) as f64 / took.as_secs_f64();
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM idem_bench.effects WHERE side = 4").fetch_one(&pool).await?;
    println!("{}", serde_json::json!({ "rate": rate, "effects": effects }));
    Ok(())
}

async fn process(pool: &PgPool, payload: &[u8]) -> Result<()> {
    let event: OrderPaid = serde_json::from_slice(payload)?;
    let mut tx = pool.begin().await?;
    ensure!(inbox::once(&mut *tx, SCHEMA, "bench", event.event_id).await?, "a fresh message was a duplicate");
    sqlx::query(EFFECT).bind(event.order_id).bind(event.amount).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}
