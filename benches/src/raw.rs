//! F: the best the database can do. For a thousand messages, one statement claims the keys and one more writes the
//! rows, in one transaction.

use std::sync::Arc;

use anyhow::{Result, ensure};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgPool};

use crate::message::{Claims, OrderPaid, RAW};
use crate::queue::Queue;

/// The number of messages per transaction.
pub(crate) const BATCH: usize = 1_000;

/// Writes the handler's rows, all with one statement.
pub(crate) const WRITE: &str = "INSERT INTO idem_bench.effects (side, order_id, amount)
    SELECT $1, * FROM unnest($2::bigint[], $3::bigint[])";

/// Processes the messages with `lanes` tasks; returns the messages per second.
pub(crate) async fn run(pool: &PgPool, claims: &Claims, lanes: usize, messages: Vec<Bytes>) -> Result<f64> {
    let Claims { table, handler } = claims;
    let claim: Arc<str> = format!(
        "INSERT INTO {table} (handler_id, key, fingerprint, processed_at)
         SELECT {handler}, key, fingerprint, now() FROM unnest($1::bytea[], $2::bytea[]) AS new (key, fingerprint)
         ON CONFLICT DO NOTHING RETURNING key"
    )
    .into();
    let pool = pool.clone();
    let process = move |payloads| process(pool.clone(), claim.clone(), payloads);
    Queue::new(messages).process(lanes, BATCH, process).await
}

async fn process(pool: PgPool, claim: Arc<str>, payloads: Vec<Bytes>) -> Result<()> {
    let mut events = Vec::with_capacity(payloads.len());
    for payload in &payloads {
        let event: OrderPaid = serde_json::from_slice(payload)?;
        events.push((event, Sha256::digest(payload)));
    }
    // Sorted, so that batches cannot deadlock on each other's claims.
    events.sort_by_key(|(event, ..)| event.event_id);
    let keys: Vec<&[u8]> = events.iter().map(|(event, ..)| &event.event_id.as_bytes()[..]).collect();
    let fingerprints: Vec<&[u8]> = events.iter().map(|(_, hash)| &hash[..16]).collect();
    let mut tx = pool.begin().await?;
    let new = sqlx::query(AssertSqlSafe(claim)).bind(&keys).bind(&fingerprints).fetch_all(&mut *tx).await?;
    ensure!(new.len() == keys.len(), "fresh messages were taken for duplicates");
    let orders: Vec<i64> = events.iter().map(|(event, ..)| event.order_id).collect();
    let amounts: Vec<i64> = events.iter().map(|(event, ..)| event.amount).collect();
    sqlx::query(WRITE).bind(RAW).bind(&orders).bind(&amounts).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}
