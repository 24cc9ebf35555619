//! A handler without the macro: exactly the code that `#[idempotent]` generates.
//!
//! `cargo run --example hand_written` needs no server.

use idem::BoxError;
use idem::handler::KeyError;
use idem::prelude::*;
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize)]
struct OrderPaid {
    event_id: String,
    order_id: i64,
}

/// The empty struct that represents the function.
struct OrderPaidHandler;

impl Handler for OrderPaidHandler {
    const NAME: &'static str = "order_paid";
    type Message = OrderPaid;
    type Input = OrderPaid;
    type Params = ();
    type Connection = SqliteConnection;

    fn key(message: &OrderPaid, _delivery: &Delivery) -> Result<Key, KeyError> {
        Key::of(&message.event_id)
    }

    async fn handle(message: OrderPaid, (): (), tx: &mut SqliteConnection) -> Result<(), BoxError> {
        sqlx::query("INSERT INTO payments (order_id) VALUES (?)").bind(message.order_id).execute(tx).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("idem-by-hand-{}.db", std::process::id()));
    let url = format!("sqlite://{}", file.display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE payments (order_id INTEGER NOT NULL)").execute(&mut db).await?;

    let broker = Broker::new();
    for _ in 0..2 {
        broker.publish_json("orders", &OrderPaid { event_id: "e-1".to_owned(), order_id: 7 })?;
    }
    let emptied = broker.clone();
    Worker::new("billing", store, broker.queue("orders"))
        .handler::<OrderPaidHandler>()
        .run_until(async move { emptied.idle().await })
        .await?;

    let payments: i64 = sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&mut db).await?;
    println!("delivered twice, paid {payments} time");
    assert_eq!(payments, 1);
    Ok(())
}
