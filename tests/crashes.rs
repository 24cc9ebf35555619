//! Handlers that are written with the attribute have one effect wherever their process dies, also in the outbox and at a
//! provider.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use idem::prelude::*;
use idem_test::harness::{Bench, CrashReport, Phase};
use idem_test::provider::Provider;
use idem_test::{MemorySink, Trial};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize)]
struct Payment {
    event_id: String,
    amount: i64,
}

/// The handler of the example `quickstart`.
#[idempotent(key = "event_id", name = "credit_account")]
async fn credit_account(payment: Payment, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE account SET balance = balance + ?").bind(payment.amount).execute(tx).await?;
    Ok(())
}

/// As the handler of the example `outbox`.
#[idempotent(key = "event_id", name = "invoice")]
async fn invoice(payment: Payment, tx: &mut SqliteConnection, outbox: Outbox) -> Result<(), BoxError> {
    sqlx::query("UPDATE account SET balance = balance + ?").bind(payment.amount).execute(tx).await?;
    outbox.publish("invoices", &payment)?.key(&payment.event_id);
    Ok(())
}

/// As the call of the example `payments`.
#[external(key_life = "24h", timeout = "5s")]
async fn charge(payment: &Payment, key: OutboundKey, State(bank): State<Provider>) -> Result<String, CallError> {
    let reply = bank.charge(Some(key.as_str()), &payment.event_id).await?;
    match reply.status {
        200 => Ok(reply.body),
        429 => Err(CallError::not_done(reply.body)),
        status => Err(format!("the status {status}: {}", reply.body).into()),
    }
}

/// As the handler of the example `payments`.
#[idempotent(key = "event_id", name = "order_placed", call = charge)]
async fn order_placed(
    payment: Payment,
    Called(charge): Called<String>,
    tx: &mut SqliteConnection,
) -> Result<(), sqlx::Error> {
    let insert = sqlx::query("INSERT INTO payments (event_id, charge) VALUES (?, ?)");
    insert.bind(payment.event_id).bind(charge).execute(tx).await?;
    Ok(())
}

/// As the first handler of the example `outbox`.
#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(payment: Payment, tx: &mut SqliteConnection, outbox: Outbox) -> Result<(), BoxError> {
    sqlx::query("UPDATE account SET balance = balance + ?").bind(payment.amount).execute(tx).await?;
    outbox.publish("invoices", &payment)?.key(&payment.event_id);
    outbox.local::<send_receipt>(&payment)?;
    Ok(())
}

/// As the second one.
#[idempotent(key = "event_id", name = "send_receipt")]
async fn send_receipt(payment: Payment, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO payments (event_id) VALUES (?)").bind(payment.event_id).execute(tx).await?;
    Ok(())
}

/// A database of one test.
struct World {
    _directory: tempfile::TempDir,
    url: String,
    db: SqliteConnection,
}

impl World {
    async fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("test.db").display());
        let mut db = SqliteConnection::connect(&format!("{url}?mode=rwc")).await.unwrap();
        let account = "CREATE TABLE account (balance INTEGER NOT NULL); INSERT INTO account VALUES (0)";
        sqlx::raw_sql(account).execute(&mut db).await.unwrap();
        let payments = "CREATE TABLE payments (event_id TEXT NOT NULL, charge TEXT)";
        sqlx::raw_sql(payments).execute(&mut db).await.unwrap();
        Self { _directory: directory, url, db }
    }

    async fn crash<H>(&mut self, digest: &'static str) -> CrashReport
    where
        H: idem::Handler<Connection = SqliteConnection>,
        H::Params: idem::extract::Extract<()>,
        idem::codec::Json: idem::codec::Codec<H::Message>,
    {
        let url = self.url.clone();
        let bench: Bench<_> = Trial::new(move || Sqlite::options(&url).connect());
        let trial = bench.handler::<H>().await.unwrap();
        let rows = async || Ok(sqlx::query_as::<_, (i64,)>(digest).fetch_all(&mut self.db).await?);
        trial.crash_everywhere(payment, rows).await.unwrap()
    }
}

fn payment(number: u32) -> Payment {
    Payment { event_id: format!("payment-{number}"), amount: 25 }
}

async fn number(db: &mut SqliteConnection, sql: &'static str) -> Result<i64, BoxError> {
    Ok(sqlx::query_scalar(sql).fetch_one(db).await?)
}

const PAYMENTS: &str = "SELECT count(*) FROM payments";

#[tokio::test]
async fn the_quickstart_has_one_effect_wherever_it_crashes() {
    println!("{}", World::make().await.crash::<credit_account>("SELECT balance FROM account").await);
}

#[tokio::test]
async fn a_message_is_staged_once_wherever_the_process_of_its_handler_crashes() {
    let staged = "SELECT count(*) FROM idem_outbox_messages UNION ALL SELECT balance FROM account";
    println!("{}", World::make().await.crash::<invoice>(staged).await);
}

#[tokio::test]
async fn a_payment_is_made_once_wherever_its_process_crashes() {
    let (World { _directory, url, mut db }, bank) = (World::make().await, Provider::new());
    let bench = Trial::new(move || Sqlite::options(&url).connect()).state(bank.clone()).provider(&bank);
    let trial = bench.handler::<order_placed>().await.unwrap();
    let report = trial.crash_everywhere(payment, async || number(&mut db, PAYMENTS).await).await.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::InCall) > 0, "{report}");
}

#[tokio::test]
async fn an_invoice_and_a_receipt_are_sent_once_wherever_a_process_crashes() {
    let (World { _directory, url, mut db }, sink) = (World::make().await, MemorySink::new());
    let bench = Trial::new(move || Sqlite::options(&url).connect()).relay(&sink).local::<send_receipt>();
    let trial = bench.handler::<order_paid>().await.unwrap();
    let both = async || {
        let balance = number(&mut db, "SELECT balance FROM account").await?;
        Ok((balance, number(&mut db, PAYMENTS).await?))
    };
    let report = trial.crash_everywhere(payment, both).await.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::InLocalHandler) > 0 && report.points_in(Phase::InDelete) > 0, "{report}");
}
