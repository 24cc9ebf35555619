//! Some payments arrive twice, and the worker crashes in the middle; the balance is correct anyway.
//!
//! `cargo run --example quickstart` needs no server: SQLite in a file, and a broker inside the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use idem::prelude::*;
use idem::store::{Filter, Page};
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Notify;

const PAYMENTS: i64 = 200;
const AMOUNT: i64 = 25;

#[derive(Serialize, Deserialize)]
struct Payment {
    event_id: String,
    amount: i64,
}

#[idempotent(key = "event_id", name = "credit_account")]
async fn credit_account(payment: Payment, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE account SET balance = balance + ?").bind(payment.amount).execute(tx).await?;
    Ok(())
}

/// The outcomes of the deliveries, counted by the worker's observer.
#[derive(Default)]
struct Tally {
    processed: AtomicUsize,
    duplicate: AtomicUsize,
    stored: AtomicUsize,
    half: Notify,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("idem-quickstart-{}.db", std::process::id()));
    let url = format!("sqlite://{}", file.display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE account (balance INTEGER NOT NULL); INSERT INTO account VALUES (0)")
        .execute(&mut db)
        .await?;

    // Every fourth payment is published twice, as by a producer that received no confirmation.
    let broker = Broker::new();
    let copies = (0..PAYMENTS).map(|n| if n % 4 == 0 { 2 } else { 1 });
    for (n, copies) in (0..PAYMENTS).zip(copies) {
        for _ in 0..copies {
            broker.publish_json("payments", &Payment { event_id: format!("payment-{n:03}"), amount: AMOUNT })?;
        }
    }
    let published = PAYMENTS + PAYMENTS / 4;
    println!("published    {published} messages: {PAYMENTS} payments of {AMOUNT}, every fourth of them twice");

    let tally = Arc::new(Tally::default());
    let worker = |life: &'static str| {
        let tally = tally.clone();
        Worker::new("bank", store.clone(), broker.queue("payments"))
            .handler::<credit_account>()
            .poll_interval(Duration::from_millis(100))
            .observe(move |delivery, outcome| tally.count(life, delivery, outcome))
    };

    // The first worker is aborted in the middle of its work, as in a crash, without a graceful shutdown.
    let first = tokio::spawn(worker("first").run_until(std::future::pending()));
    tally.half.notified().await;
    first.abort();
    let _ = first.await;
    println!("\ncrashed      the first worker, after {} payments\n", tally.processed.load(Relaxed));

    // The second worker continues until queue and inbox are empty.
    let done = {
        let (broker, inbox) = (broker.clone(), Inbox::new(&store, "bank"));
        async move {
            broker.idle().await;
            let scheduled = Filter::new().scheduled();
            while !inbox.list(&scheduled, Page::default()).await.is_ok_and(|rows| rows.is_empty()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    worker("second").run_until(done).await?;

    let balance: i64 = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&mut db).await?;
    let processed: i64 = sqlx::query_scalar("SELECT count(*) FROM idem_processed_messages").fetch_one(&mut db).await?;
    println!("\nprocessed    {processed} payments, each once");
    println!("stored       {} that had been in flight in the crash, before they ran again", tally.stored.load(Relaxed));
    println!("skipped      {} duplicates", tally.duplicate.load(Relaxed));
    println!("balance      {balance}, and it should be {}", PAYMENTS * AMOUNT);
    println!("database     {}", file.display());
    if balance != PAYMENTS * AMOUNT || processed != PAYMENTS {
        return Err("the balance is wrong".into());
    }
    Ok(())
}

impl Tally {
    fn count(&self, life: &str, delivery: &Delivery, outcome: &Outcome) {
        let payment = serde_json::from_slice::<Payment>(delivery.payload()).map(|p| p.event_id).unwrap_or_default();
        match outcome {
            Outcome::Processed => {
                let so_far = self.processed.fetch_add(1, Relaxed) + 1;
                if so_far.is_multiple_of(25) {
                    println!("{life:6} worker: {so_far} payments processed");
                }
                if so_far == PAYMENTS as usize / 2 {
                    self.half.notify_one();
                }
            }
            Outcome::Duplicate => {
                if self.duplicate.fetch_add(1, Relaxed).is_multiple_of(10) {
                    println!("{life:6} worker: skipped {payment}, a copy of a payment that is processed");
                }
            }
            Outcome::Scheduled { .. } => drop(self.stored.fetch_add(1, Relaxed)),
            outcome => println!("{life:6} worker: {payment} is {outcome:?}"),
        }
    }
}
