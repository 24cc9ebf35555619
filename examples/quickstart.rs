//! Some payments arrive twice, and the worker crashes in the middle; the balance is correct anyway.
//!
//! `cargo run --example quickstart` needs no server: SQLite in a file, and a broker inside the process.

use std::sync::{Arc, atomic::AtomicI64, atomic::Ordering::Relaxed};

use idem::Observed;
use idem::operator::{Filter, Operator, Page};
use idem::prelude::*;
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

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

/// Counts the outcomes of the deliveries.
#[derive(Default)]
struct Tally {
    processed: AtomicI64,
    stored: AtomicI64,
    skipped: AtomicI64,
    redelivered: AtomicI64,
    half: tokio::sync::Notify,
}

impl Tally {
    fn count(&self, Observed { delivery, key, outcome, .. }: Observed<'_>) {
        let payment = key.map(Key::to_string).unwrap_or_default();
        match outcome {
            Outcome::Processed if self.processed.fetch_add(1, Relaxed) + 1 == PAYMENTS / 2 => self.half.notify_one(),
            Outcome::Processed => {}
            Outcome::Duplicate => {
                self.redelivered.fetch_add(delivery.redelivered().into(), Relaxed);
                if self.skipped.fetch_add(1, Relaxed) % 10 == 0 {
                    println!("skipped      {payment}, a copy");
                }
            }
            // A message that was in flight in the crash is stored in the inbox before it runs.
            Outcome::Scheduled { attempt: 0, .. } => {
                self.stored.fetch_add(1, Relaxed);
            }
            outcome => println!("{outcome:?} {payment}"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = format!("sqlite://{}/idem-quickstart-{}.db", std::env::temp_dir().display(), std::process::id());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (0)").execute(&mut db).await?;

    // Every fourth payment is published twice, as by a producer that received no confirmation.
    let broker = Broker::new();
    for n in 0..PAYMENTS {
        let payment = Payment { event_id: format!("payment-{n:03}"), amount: AMOUNT };
        for _copy in 0..if n % 4 == 0 { 2 } else { 1 } {
            broker.publish_json("payments", &payment)?;
        }
    }
    println!("published    {PAYMENTS} payments of {AMOUNT}, every fourth of them twice");
    println!("             (every tenth copy that is skipped is shown)\n");

    let tally = Arc::new(Tally::default());
    let worker = || {
        let tally = tally.clone();
        Worker::new("bank", store.clone(), broker.queue("payments"))
            .handler::<credit_account>()
            .observe(move |observed| tally.count(observed))
    };

    // The first worker is aborted in the middle of its work, as in a crash, without a graceful shutdown.
    let first = tokio::spawn(worker().run_until(std::future::pending()));
    tally.half.notified().await;
    first.abort();
    let _ = first.await;
    println!("crashed      the worker, after {} payments; another one continues", tally.processed.load(Relaxed));

    // The second worker continues until queue and inbox are empty.
    let operator = Operator::new(&store).consumer("bank");
    let done = async {
        broker.idle().await;
        while !operator.list(&Filter::new().scheduled(), Page::default()).await.is_ok_and(|found| found.rows.is_empty())
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    worker().run_until(done).await?;

    let balance: i64 = sqlx::query_scalar("SELECT balance FROM account").fetch_one(&mut db).await?;
    let processed: i64 = sqlx::query_scalar("SELECT count(*) FROM idem_processed_messages").fetch_one(&mut db).await?;
    let Tally { stored, skipped, redelivered, .. } = &*tally;
    let [stored, skipped, redelivered] = [stored, skipped, redelivered].map(|count| count.load(Relaxed));
    println!("\nstored       {stored} payments that were in flight in the crash; then they ran");
    println!("processed    {processed} payments, each once");
    println!("skipped      {skipped} duplicates, {redelivered} of them delivered again after the crash");
    println!("balance      {balance}, and it should be {}; see {url}", PAYMENTS * AMOUNT);
    assert_eq!((balance, processed), (PAYMENTS * AMOUNT, PAYMENTS), "the balance is wrong");
    Ok(())
}
