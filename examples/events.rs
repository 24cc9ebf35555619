//! Two event types on one queue, with a handler for each, state for both, and a key of two values.
//!
//! `cargo run --example events` needs no server.

use std::sync::Arc;

use idem::Reason;
use idem::operator::{Filter, Operator, Page};
use idem::prelude::*;
use idem_test::{Broker, Publication};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize)]
struct OrderPaid {
    event_id: u32,
    cents: i64,
}

#[derive(Serialize, Deserialize)]
struct OrderRefunded {
    event_id: u32,
    cents: i64,
}

/// The state, which every handler of the worker can extract as `State<Arc<Fees>>`: settings, or a client of another
/// service.
struct Fees {
    percent: i64,
}

/// Each tenant numbers its events from 1, so an event is identified only by tenant and number together.
#[idempotent(key = (header("tenant"), event_id), name = "order_paid", event = "order.paid")]
async fn order_paid(
    event: OrderPaid,
    State(fees): State<Arc<Fees>>,
    headers: Headers,
    tx: &mut SqliteConnection,
) -> Result<(), BoxError> {
    let cents = event.cents - event.cents * fees.percent / 100;
    book(headers.get_str("tenant").unwrap_or_default(), cents, tx).await
}

#[idempotent(key = (header("tenant"), event_id), name = "order_refunded", event = "order.refunded")]
async fn order_refunded(event: OrderRefunded, headers: Headers, tx: &mut SqliteConnection) -> Result<(), BoxError> {
    book(headers.get_str("tenant").unwrap_or_default(), -event.cents, tx).await
}

async fn book(tenant: &str, cents: i64, tx: &mut SqliteConnection) -> Result<(), BoxError> {
    println!("booked    {tenant:5} {cents:6}");
    sqlx::query("INSERT INTO bookings (tenant, cents) VALUES (?, ?)").bind(tenant).bind(cents).execute(tx).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE bookings (tenant TEXT NOT NULL, cents INTEGER NOT NULL)").execute(&mut db).await?;

    // The event type of a message selects its handler. RabbitMQ has the property `type`; elsewhere `.event_type(..)`
    // names a header.
    let broker = Broker::new();
    let paid = Publication::json(&OrderPaid { event_id: 1, cents: 5_000 })?.event_type("order.paid");
    broker.publish("orders", paid.clone().header("tenant", "north"));
    broker.publish("orders", paid.clone().header("tenant", "south")); // another event: another tenant
    broker.publish("orders", paid.header("tenant", "north")); // a copy
    let refunded = Publication::json(&OrderRefunded { event_id: 2, cents: 1_000 })?.event_type("order.refunded");
    broker.publish("orders", refunded.header("tenant", "north"));
    broker.publish("orders", Publication::new("{}").event_type("order.lost")); // no handler takes it

    let emptied = broker.clone();
    Worker::new("ledger", store.clone(), broker.queue("orders"))
        .state(Arc::new(Fees { percent: 2 }))
        .handler::<order_paid>()
        .handler::<order_refunded>()
        .run_until(async move { emptied.idle().await })
        .await?;

    let query = "SELECT tenant, sum(cents) FROM bookings GROUP BY tenant ORDER BY tenant";
    let balances: Vec<(String, i64)> = sqlx::query_as(query).fetch_all(&mut db).await?;
    println!("balances  {balances:?}");
    assert_eq!(balances, [("north".to_owned(), 3_900), ("south".to_owned(), 4_900)]);

    let dead = Operator::new(&store).consumer("ledger").list(&Filter::default(), Page::default()).await?.rows;
    println!("dead      {}", dead[0].error);
    assert_eq!((dead.len(), dead[0].reason), (1, Some(Reason::UnknownType)));
    Ok(())
}
