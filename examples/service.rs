//! A service with two workers, which ends cleanly at ctrl-c or SIGTERM: running handlers finish, and nothing is lost.
//!
//! `cargo run --example service` needs no server: SQLite in a file, and a broker inside the process. A real service
//! uses RabbitMQ, NATS, Kafka or SQS instead of `broker.queue(..)`.

use std::time::Duration;

use idem::prelude::*;
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize)]
struct OrderPaid {
    event_id: String,
    amount: i64,
}

#[derive(Serialize, Deserialize)]
struct Refund {
    event_id: String,
    amount: i64,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(event: OrderPaid, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    println!("handling {}", event.event_id);
    sqlx::query("UPDATE account SET balance = balance + ?").bind(event.amount).execute(tx).await?;
    // Long enough that the signal arrives in the middle.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

#[idempotent(key = "event_id", name = "refund")]
async fn refund(event: Refund, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    println!("handling {}", event.event_id);
    sqlx::query("UPDATE account SET balance = balance - ?").bind(event.amount).execute(tx).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let file = std::env::temp_dir().join(format!("idem-service-{}.db", std::process::id()));
    let url = format!("sqlite://{}", file.display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let table = "CREATE TABLE account (balance INTEGER NOT NULL); INSERT INTO account VALUES (0)";
    sqlx::raw_sql(table).execute(&mut db).await?;

    let broker = Broker::new();
    broker.publish_json("refunds", &Refund { event_id: "refund-1".to_owned(), amount: 5 })?;
    broker.publish_json("orders", &OrderPaid { event_id: "order-1".to_owned(), amount: 25 })?;

    let orders = Worker::new("billing-orders", store.clone(), broker.queue("orders")).handler::<order_paid>();
    let refunds = Worker::new("billing-refunds", store, broker.queue("refunds")).handler::<refund>();
    let workers = Workers::new().add(orders).add(refunds);
    // For a readiness probe: it is ready while all workers are.
    let health = workers.health();
    println!("running as process {}; end with ctrl-c or SIGTERM", std::process::id());
    workers.run_until(idem::shutdown_signal()).await?;

    assert!(!health.is_ready());
    let balance: i64 = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&mut db).await?;
    println!("ended with the balance {balance}");
    std::fs::remove_file(file)?;
    Ok(())
}
