//! Consumes orders from NATS JetStream and writes to PostgreSQL.
//!
//! Create the stream, and start the example. In a second shell, after the same `eval`, publish a message twice.
//!
//! ```sh
//! eval "$(cargo xtask services up)"
//! nats --server "$NATS_URL" stream add orders --subjects orders --defaults
//! cargo run --example nats --features postgres,nats
//! nats --server "$NATS_URL" pub orders '{"event_id": "2f1e3c5a-7b9d-4e60-8c12-5a4b3c2d1e0f", "order_id": 7}'
//! ```

use idem::prelude::*;
use serde::Deserialize;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

#[derive(Deserialize)]
struct OrderPaid {
    event_id: Uuid,
    order_id: i64,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(event: OrderPaid, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO payments (order_id) VALUES ($1)").bind(event.order_id).execute(tx).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = std::env::var("DATABASE_URL")?;
    // A service creates this table in its migrations; the table has no unique constraint and needs none.
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS payments (order_id bigint NOT NULL)")
        .execute(&mut PgConnection::connect(&database).await?)
        .await?;

    let store = Postgres::connect(&database).await?;
    // The stream must exist. The durable consumer `billing` is created if needed.
    let orders = Nats::connect(&std::env::var("NATS_URL")?).await?.stream("orders").await?;
    println!("consuming orders; end with ctrl-c or SIGTERM");
    Worker::new("billing", store, orders)
        .handler::<order_paid>()
        .observe(|observed| println!("{}", observed.outcome.as_str()))
        .run_until(idem::shutdown_signal())
        .await?;
    Ok(())
}
