//! Handlers that are written with the attribute have one effect wherever their process dies, also in the outbox.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use idem::prelude::*;
use idem_test::Trial;
use idem_test::harness::{Bench, CrashReport};
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
        let payment = |number: u32| Payment { event_id: format!("payment-{number}"), amount: 25 };
        let rows = async || Ok(sqlx::query_as::<_, (i64,)>(digest).fetch_all(&mut self.db).await?);
        trial.crash_everywhere(payment, rows).await.unwrap()
    }
}

#[tokio::test]
async fn the_quickstart_has_one_effect_wherever_it_crashes() {
    println!("{}", World::make().await.crash::<credit_account>("SELECT balance FROM account").await);
}

#[tokio::test]
async fn a_message_is_staged_once_wherever_the_process_of_its_handler_crashes() {
    let staged = "SELECT count(*) FROM idem_outbox_messages UNION ALL SELECT balance FROM account";
    println!("{}", World::make().await.crash::<invoice>(staged).await);
}
