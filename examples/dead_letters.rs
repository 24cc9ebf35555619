//! Two messages become dead letters. The operator removes the cause of one and replays it, and discards the other.
//!
//! `cargo run --example dead_letters` needs no server. The calls of `Operator` need a store and no worker; the command `idem` makes
//! the same.

use idem::operator::{Filter, Operator, Page};
use idem::prelude::*;
use idem::store::Replayed;
use idem::{Observed, Reason};
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct OrderPaid {
    event_id: String,
    order_id: i64,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(event: OrderPaid, tx: &mut SqliteConnection) -> Result<(), BoxError> {
    let paid = sqlx::query("UPDATE orders SET paid = 1 WHERE id = ?").bind(event.order_id).execute(tx).await?;
    if paid.rows_affected() == 0 {
        return Err(permanent(format!("there is no order {}", event.order_id)));
    }
    Ok(())
}

/// Runs a worker until it has settled this many messages of the broker or the inbox.
async fn work(store: &Sqlite, broker: &Broker, messages: usize) -> Result<Vec<Outcome>, idem::Error> {
    let (report, mut reports) = mpsc::unbounded_channel();
    let mut outcomes = Vec::new();
    let settled = async {
        while outcomes.len() < messages
            && let Some(outcome) = reports.recv().await
        {
            outcomes.push(outcome);
        }
    };
    Worker::new("billing", store.clone(), broker.queue("orders"))
        .handler::<order_paid>()
        .observe(move |Observed { delivery, outcome, .. }| {
            println!("worker      {} is {outcome:?}", String::from_utf8_lossy(delivery.payload()));
            let _ = report.send(outcome.clone());
        })
        .run_until(settled)
        .await?;
    Ok(outcomes)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let table = "CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER NOT NULL); INSERT INTO orders VALUES (1, 0)";
    sqlx::raw_sql(table).execute(&mut db).await?;

    let broker = Broker::new();
    for order_id in [1, 2, -1] {
        broker.publish_json("orders", &OrderPaid { event_id: format!("paid-{order_id}"), order_id })?;
    }
    work(&store, &broker, 3).await?;

    // The newest 100 dead letters of the consumer. A `Filter` selects a handler, a reason or a text; a `Page` continues the list.
    let operator = Operator::of(&store, "billing").await?.by("anna");
    let dead = operator.list(&Filter::default(), Page::default()).await?.rows;
    assert_eq!(dead.len(), 2);
    for row in &dead {
        println!("dead letter {} of {}: key {}, {}", row.id, row.handler, row.identity.key, row.error);
        assert_eq!(row.reason, Some(Reason::Permanent));
    }

    // Order 2 was missing. Its message runs again under the claim that it kept, so that no copy can overtake it.
    sqlx::raw_sql("INSERT INTO orders VALUES (2, 0)").execute(&mut db).await?;
    let id = |error: &str| dead.iter().find(|row| row.error == error).map(|row| row.id).unwrap_or_default();
    let (missing, wrong) = (id("there is no order 2"), id("there is no order -1"));
    assert_eq!(operator.replay(missing).await?, Replayed::Due);
    println!("operator    has replayed {missing}");

    // Order -1 will never exist. Its claim stays, so a late copy of a discarded message is still a duplicate.
    assert!(operator.discard(wrong).await?);
    println!("operator    has discarded {wrong}");
    broker.publish_json("orders", &OrderPaid { event_id: "paid--1".to_owned(), order_id: -1 })?;
    let outcomes = work(&store, &broker, 2).await?;
    assert!(outcomes.contains(&Outcome::Processed) && outcomes.contains(&Outcome::Duplicate), "{outcomes:?}");

    let paid: Vec<i64> =
        sqlx::query_scalar("SELECT id FROM orders WHERE paid = 1 ORDER BY id").fetch_all(&mut db).await?;
    assert_eq!(paid, [1, 2]);
    assert!(operator.list(&Filter::default(), Page::default()).await?.rows.is_empty());
    println!("paid orders {paid:?}, no dead letters");

    // Each change is kept, with the attempts and the error before it.
    let changes = operator.operations(None, Page::default()).await?;
    assert_eq!(changes.len(), 2);
    for change in changes {
        println!("{} {} row {}", change.actor, change.action, change.row.unwrap_or_default());
    }
    Ok(())
}
