//! One step fails twice. The steps behind it wait, and all of them run in the order in which they were published.
//!
//! `cargo run --example ordering` needs no server.

use std::time::Duration;

use idem::DeliveryOrder;
use idem::prelude::*;
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize)]
struct Step {
    event_id: String,
    name: String,
    failures: u32,
}

#[idempotent(key = "event_id", name = "step")]
async fn step(step: Step, delivery: Delivery, tx: &mut SqliteConnection) -> Result<(), BoxError> {
    // The writes of a failed attempt are rolled back.
    sqlx::query("INSERT INTO history (step) VALUES (?)").bind(&step.name).execute(tx).await?;
    if delivery.attempt() <= step.failures {
        println!("{:8} attempt {}: fails", step.name, delivery.attempt());
        return Err("the warehouse does not answer".into());
    }
    println!("{:8} attempt {}: done", step.name, delivery.attempt());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE history (step TEXT NOT NULL)").execute(&mut db).await?;

    let broker = Broker::new();
    for (name, failures) in [("ordered", 0), ("packed", 2), ("shipped", 0), ("invoiced", 1), ("closed", 0)] {
        let event_id = format!("order-7-{name}");
        broker.publish_json("steps", &Step { event_id, name: name.to_owned(), failures })?;
    }

    // In the order of the queue, the next message starts when the previous one is processed or a dead letter.
    let emptied = broker.clone();
    Worker::new("shop", store, broker.queue("steps"))
        .handler::<step>()
        .order(DeliveryOrder::Queue)
        .retry(RetryPolicy::new().min_delay(Duration::from_millis(50)).max_delay(Duration::from_millis(200)))
        .poll_interval(Duration::from_millis(50))
        .run_until(async move { emptied.idle().await })
        .await?;

    let history: Vec<String> = sqlx::query_scalar("SELECT step FROM history ORDER BY rowid").fetch_all(&mut db).await?;
    println!("\nhistory  {}", history.join(", "));
    assert_eq!(history, ["ordered", "packed", "shipped", "invoiced", "closed"]);
    Ok(())
}
