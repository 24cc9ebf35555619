//! Consumes orders from NATS JetStream, and keeps the stock in Redis: no SQL.
//!
//! Create the stream, and start the example. In a second shell, after the same `eval`, publish a message twice: the stock changes once.
//!
//! ```sh
//! eval "$(cargo xtask services up)"
//! nats --server "$NATS_URL" stream add reservations --subjects reservations --defaults
//! cargo run --example redis --features nats,redis
//! nats --server "$NATS_URL" pub reservations '{"event_id": "2f1e3c5a-7b9d-4e60-8c12-5a4b3c2d1e0f", "sku": "book", "n": 2}'
//! redis-cli -u "$REDIS_URL" get stock:book
//! ```

use std::time::Duration;

use idem::prelude::*;
use idem::redis::RedisWrites;
use serde::Deserialize;
use uuid::Uuid;

#[derive(Deserialize)]
struct Reserve {
    event_id: Uuid,
    sku: String,
    n: i64,
}

/// The write is applied once, together with the completion of the message.
#[idempotent(key = "event_id", name = "reserve")]
async fn reserve(event: Reserve, writes: &mut RedisWrites) -> Result<(), BoxError> {
    writes.decr_by(format!("stock:{}", event.sku), event.n);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redis = Redis::connect(&std::env::var("REDIS_URL")?).await?.retention(Duration::from_secs(30 * 24 * 3600));
    let reservations = Nats::connect(&std::env::var("NATS_URL")?).await?.stream("reservations").await?;
    println!("consuming reservations; end with ctrl-c or SIGTERM");
    Worker::new("stock", redis, reservations)
        .handler::<reserve>()
        .observe(|observed| println!("{}", observed.outcome.as_str()))
        .run_until(idem::shutdown_signal())
        .await?;
    Ok(())
}
