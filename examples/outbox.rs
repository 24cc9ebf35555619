//! A handler that tells others: payments come in twice, and each order is invoiced once, by another worker behind a relay.
//!
//! `cargo run --example outbox` needs no server: SQLite in a file, and a broker inside the process.

use idem::prelude::*;
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

const ORDERS: i64 = 5;

#[derive(Serialize, Deserialize)]
struct OrderPaid {
    event_id: String,
    order_id: i64,
}

#[derive(Serialize, Deserialize)]
struct InvoiceRequested {
    order_id: i64,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    order_id: i64,
}

/// The message leaves if, and only if, the order is paid: it is a row of the same transaction.
#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(event: OrderPaid, tx: &mut SqliteConnection, outbox: Outbox) -> Result<(), BoxError> {
    sqlx::query("UPDATE orders SET paid = 1 WHERE id = ?").bind(event.order_id).execute(tx).await?;
    // Messages of one key arrive in the order in which they were staged.
    outbox.publish("invoices", &InvoiceRequested { order_id: event.order_id })?.key(event.order_id);
    // For another handler of this worker, no broker is needed.
    outbox.local::<send_receipt>(&Receipt { order_id: event.order_id })?;
    println!("paid      order {}, and asked for its invoice", event.order_id);
    Ok(())
}

#[idempotent(key = "order_id", name = "send_receipt")]
async fn send_receipt(receipt: Receipt, tx: &mut SqliteConnection) -> Result<(), BoxError> {
    sqlx::query("UPDATE orders SET receipts = receipts + 1 WHERE id = ?").bind(receipt.order_id).execute(tx).await?;
    Ok(())
}

/// The relay may publish a message twice, under the same id.
#[idempotent(key = message_id, name = "invoice_requested")]
async fn invoice_requested(event: InvoiceRequested, tx: &mut SqliteConnection) -> Result<(), BoxError> {
    sqlx::query("INSERT INTO invoices (order_id) VALUES (?)").bind(event.order_id).execute(tx).await?;
    println!("invoiced  order {}", event.order_id);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER, receipts INTEGER); CREATE TABLE invoices (order_id INTEGER)",
    )
    .execute(&mut db)
    .await?;

    let broker = Broker::new();
    for order_id in 1..=ORDERS {
        sqlx::query("INSERT INTO orders VALUES (?, 0, 0)").bind(order_id).execute(&mut db).await?;
        for _copy in 0..2 {
            broker.publish_json("payments", &OrderPaid { event_id: format!("payment-{order_id}"), order_id })?;
        }
    }

    // A service names its broker instead, for example `rabbit.exchange("events")`; the relay may run in its own process.
    let relay = Relay::new("shop", store.clone(), broker.clone());
    let shop = Worker::new("shop", store.clone(), broker.queue("payments")).handler::<order_paid>();
    let shop = shop.handler_options::<send_receipt>(HandlerOptions::new().local_only());
    let invoicing = Worker::new("invoicing", store, broker.queue("invoices")).handler::<invoice_requested>();
    let done = async {
        let made = "SELECT (SELECT count(*) FROM invoices) + (SELECT sum(receipts) FROM orders)";
        while sqlx::query_scalar::<_, i64>(made).fetch_one(&mut db).await.is_ok_and(|made| made < 2 * ORDERS) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        broker.idle().await;
    };
    Workers::new().add(shop).add(invoicing).relay(relay).run_until(done).await?;

    let counted = "SELECT sum(paid), sum(receipts), (SELECT count(*) FROM invoices) FROM orders";
    let counted: (i64, i64, i64) = sqlx::query_as(counted).fetch_one(&mut db).await?;
    println!("\n{} payments, {} orders paid, {} receipts, {} invoices", 2 * ORDERS, counted.0, counted.1, counted.2);
    assert_eq!(counted, (ORDERS, ORDERS, ORDERS));
    Ok(())
}
