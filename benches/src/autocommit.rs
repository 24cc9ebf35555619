//! A: a consumer that trusts its broker. It runs one autocommitted statement for each message, then acks.

use anyhow::Result;
use bytes::Bytes;
use sqlx::PgPool;

use crate::message::{AUTOCOMMIT, EFFECT, OrderPaid};
use crate::queue::Queue;

/// Processes the messages with `lanes` tasks; returns the messages per second.
pub(crate) async fn run(pool: &PgPool, lanes: usize, messages: Vec<Bytes>) -> Result<f64> {
    let pool = pool.clone();
    let process = move |payload: Bytes| {
        let pool = pool.clone();
        async move {
            let event: OrderPaid = serde_json::from_slice(&payload)?;
            let query = sqlx::query(EFFECT).bind(AUTOCOMMIT).bind(event.order_id).bind(event.amount);
            query.execute(&pool).await?;
            Ok(())
        }
    };
    Queue::new(messages).process(lanes, process).await
}
