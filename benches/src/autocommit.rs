//! A: a consumer that trusts its broker. It runs one autocommitted statement for each message, then acks.

use anyhow::{Context, Result};
use bytes::Bytes;
use sqlx::PgPool;
use tokio::task::JoinSet;

use crate::message::{AUTOCOMMIT, EFFECT, HEAT, OrderPaid, hot_row};
use crate::queue::Queue;

/// Processes the messages with `lanes` tasks; returns the messages per second.
pub(crate) async fn run(pool: &PgPool, lanes: usize, hot: bool, messages: Vec<Bytes>) -> Result<f64> {
    let queue = Queue::new(messages);
    let mut tasks = JoinSet::new();
    for _ in 0..lanes {
        let (pool, queue) = (pool.clone(), queue.clone());
        tasks.spawn(async move {
            while let Some(payload) = queue.pop() {
                let event: OrderPaid = serde_json::from_slice(&payload)?;
                let query = if hot {
                    sqlx::query(HEAT).bind(hot_row(&event))
                } else {
                    sqlx::query(EFFECT).bind(AUTOCOMMIT).bind(event.order_id).bind(event.amount)
                };
                query.execute(&pool).await?;
                queue.ack();
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    queue.rate().context("the loop ended before its queue was empty")
}
