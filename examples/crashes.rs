//! Lets processes die everywhere: a payment, its event and its receipt have one effect, and a mistake is found.
//!
//! `cargo run --example crashes` needs no server: SQLite in files, a fake bank, and a broker in memory. A test of a service
//! looks the same.

use idem::prelude::*;
use idem_test::provider::Provider;
use idem_test::{MemorySink, Trial};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize)]
struct OrderPlaced {
    event_id: String,
}

/// The call that is under test: it sends its key, so the bank recognizes a repeated one.
#[external(key_life = "24h")]
async fn charge(order: &OrderPlaced, key: OutboundKey, State(bank): State<Provider>) -> Result<String, CallError> {
    pay(&bank, Some(&key), &order.event_id).await
}

/// The same with a mistake: the key is not sent.
#[external(key_life = "24h")]
async fn charge_blindly(
    order: &OrderPlaced,
    _: OutboundKey,
    State(bank): State<Provider>,
) -> Result<String, CallError> {
    pay(&bank, None, &order.event_id).await
}

async fn pay(bank: &Provider, key: Option<&OutboundKey>, order: &str) -> Result<String, CallError> {
    let reply = bank.charge(key.map(OutboundKey::as_str), order).await?;
    match reply.status {
        200 => Ok(reply.body),
        429 => Err(CallError::not_done(reply.body)),
        status => Err(format!("the bank answers {status}").into()),
    }
}

/// Completes the payment, tells others, and hands over to the next handler.
#[idempotent(key = "event_id", name = "order_placed", call = charge)]
async fn order_placed(order: OrderPlaced, tx: &mut SqliteConnection, outbox: Outbox) -> Result<(), BoxError> {
    sqlx::query("UPDATE counts SET payments = payments + 1").execute(tx).await?;
    outbox.publish("invoices", &order)?;
    outbox.local::<send_receipt>(&order)?;
    Ok(())
}

#[idempotent(key = "event_id", name = "send_receipt")]
async fn send_receipt(_: OrderPlaced, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE counts SET receipts = receipts + 1").execute(tx).await?;
    Ok(())
}

#[idempotent(key = "event_id", name = "order_placed", call = charge_blindly)]
async fn placed_blindly(_: OrderPlaced, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE counts SET payments = payments + 1").execute(tx).await?;
    Ok(())
}

fn order(number: u32) -> OrderPlaced {
    OrderPlaced { event_id: format!("order-{number}") }
}

/// Returns the database of one trial, in a file that no other trial uses.
async fn database(directory: &tempfile::TempDir, name: &str) -> Result<(String, SqliteConnection), BoxError> {
    let url = format!("sqlite://{}", directory.path().join(name).display());
    let mut db = SqliteConnection::connect(&format!("{url}?mode=rwc")).await?;
    let counts = "CREATE TABLE counts (payments INTEGER, receipts INTEGER); INSERT INTO counts VALUES (0, 0)";
    sqlx::raw_sql(counts).execute(&mut db).await?;
    Ok((url, db))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (directory, bank, sink) = (tempfile::tempdir()?, Provider::new(), MemorySink::new());
    let (url, mut db) = database(&directory, "sound.db").await?;
    let bench = Trial::new(move || Sqlite::options(&url).connect()).state(bank.clone()).provider(&bank);
    let trial = bench.relay(&sink).local::<send_receipt>().handler::<order_placed>().await?;
    // A pair: each of the two handlers has its own transaction.
    let counts = async || {
        let counts = sqlx::query_as::<_, (i64, i64)>("SELECT payments, receipts FROM counts");
        Ok(counts.fetch_one(&mut db).await?)
    };
    println!("{}\n", trial.crash_everywhere(order, counts).await?);

    let (url, mut db) = database(&directory, "blind.db").await?;
    let bench = Trial::new(move || Sqlite::options(&url).connect()).state(bank.clone()).provider(&bank);
    let trial = bench.handler::<placed_blindly>().await?;
    let payments = async || Ok(sqlx::query_scalar::<_, i64>("SELECT payments FROM counts").fetch_one(&mut db).await?);
    let Err(found) = trial.crash_everywhere(order, payments).await else {
        return Err("the mistake was not found".into());
    };
    println!("{found}");
    assert!(found.to_string().contains("charged twice"));
    Ok(())
}
