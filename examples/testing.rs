//! Tests of a handler: `cargo run --example testing`, or `cargo test --example testing`.
//!
//! A unit test calls the handler as a plain function. A `Trial` tests what idem adds, with real workers, a real
//! database (SQLite in a file of its own here; `Trial::postgres()` also works), a broker inside the process, and crashes.

use idem::Reason;
use idem::prelude::*;
use idem_test::{Crash, Trial};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;

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

const TABLES: &str = "CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (0)";
const BALANCE: &str = "SELECT balance FROM account";

fn order(number: u32, amount: i64) -> OrderPaid {
    OrderPaid { event_id: format!("order-{number}"), amount }
}

/// A unit test: calls the function, checks the tables, and never commits.
async fn a_payment_is_added_to_the_balance() -> TestResult {
    let trial = Trial::sqlite().tables(TABLES).handler::<order_paid>().await?;
    let balance = trial.rolled_back(async |tx: &mut SqliteConnection| {
        order_paid(order(1, 25), tx).await?;
        Ok(sqlx::query_scalar::<_, i64>(BALANCE).fetch_one(tx).await?)
    });
    assert_eq!(balance.await?, 25);
    Ok(())
}

/// Ten deliveries, five of them concurrent, and a crash between commit and ack: each message has one effect.
async fn a_duplicate_has_no_second_effect() -> TestResult {
    let trial = Trial::sqlite().tables(TABLES).handler::<order_paid>().await?;
    trial.deliver_json(&order(1, 25))?.times(10).await?;
    trial.deliver_json(&order(2, 25))?.at_once(5).await?;
    assert_eq!(trial.number(BALANCE).await?, 50);
    let outcomes = trial.deliver_json(&order(3, 25))?.crash(Crash::AfterCommit).once().await?;
    assert_eq!(outcomes, [Outcome::Duplicate], "the process that came after the crash found the claim");
    assert_eq!(trial.number(BALANCE).await?, 75);
    Ok(())
}

/// The same and more in one line each: every number of copies, a crash at every point, and a crash in each await.
async fn every_way_has_one_effect() -> TestResult {
    let trial = Trial::sqlite().tables(TABLES).handler::<order_paid>().await?;
    trial.has_one_effect(|number| order(number, 25), async || trial.number(BALANCE).await).await?;
    println!("{}", trial.crash_everywhere(|n| order(1000 + n, 25), async || trial.number(BALANCE).await).await?);
    Ok(())
}

/// A message that can never succeed becomes a dead letter immediately.
async fn a_negative_amount_is_a_dead_letter() -> TestResult {
    let trial = Trial::sqlite().tables(TABLES).handler::<order_paid>().await?;
    let outcomes = trial.deliver_json(&order(1, -25))?.once().await?;
    assert_eq!(outcomes, [Outcome::dead(Reason::Permanent)]);
    assert_eq!(trial.dead_letters().await?[0].error, "a negative amount");
    assert_eq!(trial.number(BALANCE).await?, 0);
    Ok(())
}

#[tokio::main]
async fn main() -> TestResult {
    a_payment_is_added_to_the_balance().await?;
    a_duplicate_has_no_second_effect().await?;
    every_way_has_one_effect().await?;
    a_negative_amount_is_a_dead_letter().await
}

#[test]
fn all_hold() -> TestResult {
    main()
}
