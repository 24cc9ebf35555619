//! Tests of a handler: `cargo run --example testing`, or `cargo test --example testing`.
//!
//! A unit test calls the handler as a plain function. A `Trial` tests what idem adds, with real workers, a real
//! database (SQLite in a file here; PostgreSQL also works), a broker inside the process, and crashes.

use idem::Reason;
use idem::prelude::*;
use idem_test::{Crash, Trial};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

type TestResult = Result<(), BoxError>;

#[derive(Clone, Serialize, Deserialize)]
struct OrderPaid {
    event_id: String,
    amount: i64,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(event: OrderPaid, tx: &mut SqliteConnection) -> Result<(), BoxError> {
    if event.amount < 0 {
        return Err(permanent("a negative amount"));
    }
    sqlx::query("UPDATE account SET balance = balance + ?").bind(event.amount).execute(tx).await?;
    Ok(())
}

/// Returns the database of one test, in a file that no other test uses.
async fn database(test: &str) -> Result<(String, SqliteConnection), BoxError> {
    let file = std::env::temp_dir().join(format!("idem-testing-{test}-{}.db", std::process::id()));
    let url = format!("sqlite://{}", file.display());
    let mut db = SqliteConnection::connect(&format!("{url}?mode=rwc")).await?;
    sqlx::raw_sql("CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (0)").execute(&mut db).await?;
    Ok((url, db))
}

async fn balance(db: &mut SqliteConnection) -> Result<i64, BoxError> {
    Ok(sqlx::query_scalar("SELECT balance FROM account").fetch_one(db).await?)
}

fn order(number: u32, amount: i64) -> OrderPaid {
    OrderPaid { event_id: format!("order-{number}"), amount }
}

/// A unit test: calls the function, checks the tables, and never commits.
async fn a_payment_is_added_to_the_balance() -> TestResult {
    let (_, mut db) = database("unit").await?;
    let mut tx = db.begin().await?;
    order_paid(order(1, 25), &mut tx).await?;
    assert_eq!(balance(&mut tx).await?, 25);
    Ok(())
}

/// Ten deliveries, five of them concurrent, and a crash between commit and ack: each message has one effect.
async fn a_duplicate_has_no_second_effect() -> TestResult {
    let (url, mut db) = database("duplicates").await?;
    let trial = Trial::new(move || Sqlite::options(&url).connect()).handler::<order_paid>().await?;
    trial.deliver_json(&order(1, 25))?.times(10).await?;
    trial.deliver_json(&order(2, 25))?.at_once(5).await?;
    assert_eq!(balance(&mut db).await?, 50);
    let outcomes = trial.deliver_json(&order(3, 25))?.crash(Crash::AfterCommit).once().await?;
    assert_eq!(outcomes, [Outcome::Duplicate], "the process that came after the crash found the claim");
    assert_eq!(balance(&mut db).await?, 75);
    Ok(())
}

/// The same and more in one line: every number of copies, and a crash at every point.
async fn every_way_has_one_effect() -> TestResult {
    let (url, mut db) = database("every-way").await?;
    let trial = Trial::new(move || Sqlite::options(&url).connect()).handler::<order_paid>().await?;
    trial.has_one_effect(|number| order(number, 25), async || balance(&mut db).await).await
}

/// One line again, for each await in which a process can die: of the handler, of idem and of the driver.
async fn a_crash_anywhere_leaves_one_effect() -> TestResult {
    let (url, mut db) = database("everywhere").await?;
    let trial = Trial::new(move || Sqlite::options(&url).connect()).handler::<order_paid>().await?;
    let report = trial.crash_everywhere(|number| order(number, 25), async || balance(&mut db).await).await?;
    println!("{report}");
    Ok(())
}

/// A message that can never succeed becomes a dead letter immediately.
async fn a_negative_amount_is_a_dead_letter() -> TestResult {
    let (url, mut db) = database("dead").await?;
    let trial = Trial::new(move || Sqlite::options(&url).connect()).handler::<order_paid>().await?;
    let outcomes = trial.deliver_json(&order(1, -25))?.once().await?;
    assert_eq!(outcomes, [Outcome::dead(Reason::Permanent)]);
    assert_eq!(trial.dead_letters().await?[0].error, "a negative amount");
    assert_eq!(balance(&mut db).await?, 0);
    Ok(())
}

#[tokio::main]
async fn main() -> TestResult {
    a_payment_is_added_to_the_balance().await?;
    a_duplicate_has_no_second_effect().await?;
    every_way_has_one_effect().await?;
    a_crash_anywhere_leaves_one_effect().await?;
    a_negative_amount_is_a_dead_letter().await?;
    println!("one effect: ten times, five at once, and with a crash at every point");
    Ok(())
}

#[test]
fn all_hold() -> TestResult {
    main()
}
