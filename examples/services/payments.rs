//! A payment: the provider is called over HTTP, outside of the transaction, and charges each order once.
//!
//! `cargo run -p idem-examples --example payments` needs no server: the provider is a fake one, busy at first.
//! Each order comes twice.

use axum::extract::State as Fake;
use axum::http::{HeaderMap, StatusCode};
use axum::{Router, routing};
use idem::prelude::*;
use idem_test::Broker;
use idem_test::provider::{Fault, Provider};
use sqlx::{Connection, SqliteConnection};
use tokio::net::TcpListener;

#[derive(serde::Deserialize, serde::Serialize)]
struct OrderPlaced {
    event_id: String,
}

#[derive(serde::Deserialize, serde::Serialize)]
struct Charge(String);

#[derive(Clone)]
struct Bank {
    client: reqwest::Client,
    url: String,
}

impl Bank {
    async fn charge(&self, key: OutboundKey, order: &str) -> Result<(StatusCode, String), reqwest::Error> {
        let request = self.client.post(&self.url).header("Idempotency-Key", key.to_string()).body(order.to_owned());
        let answer = request.send().await?;
        println!("{key} {order}: {}", answer.status());
        Ok((answer.status(), answer.text().await?))
    }
}

/// Runs with no transaction open, at least once, each time under the same key.
#[external(key_life = "24h", timeout = "5s")]
async fn charge(order: &OrderPlaced, key: OutboundKey, State(bank): State<Bank>) -> Result<Charge, CallError> {
    match bank.charge(key, &order.event_id).await? {
        (StatusCode::OK, number) => Ok(Charge(number)),
        (StatusCode::TOO_MANY_REQUESTS, why) => Err(CallError::not_done(why)),
        (status, why) => Err(format!("the status {status}: {why}").into()),
    }
}

/// Completes the message, in the transaction of its claim.
#[idempotent(key = "event_id", name = "order_placed", call = charge)]
async fn order_placed(
    order: OrderPlaced,
    Called(charge): Called<Charge>,
    tx: &mut SqliteConnection,
) -> Result<(), sqlx::Error> {
    let insert = sqlx::query("INSERT INTO payments (event_id, charge) VALUES (?, ?)");
    insert.bind(order.event_id).bind(charge.0).execute(tx).await.map(drop)
}

async fn post(Fake(provider): Fake<Provider>, headers: HeaderMap, body: String) -> (StatusCode, String) {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    let Ok(reply) = provider.charge(key, &body).await else { return (failed, String::new()) };
    (StatusCode::from_u16(reply.status).unwrap_or(failed), reply.body)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (provider, listener) = (Provider::new(), TcpListener::bind(("127.0.0.1", 0)).await?);
    let url = format!("http://{}/charges", listener.local_addr()?);
    let bank = Bank { client: reqwest::Client::new(), url };
    let api = Router::new().route("/charges", routing::post(post));
    tokio::spawn(axum::serve(listener, api.with_state(provider.clone())).into_future());
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE payments (event_id TEXT, charge TEXT)").execute(&mut db).await?;
    let broker = Broker::new();
    for id in ["e-1", "e-2", "e-1", "e-2"] {
        broker.publish_json("orders", &OrderPlaced { event_id: id.to_owned() })?;
    }
    provider.fail("e-1", [Fault::Busy]);
    let paid = async {
        let count = "SELECT count(*) FROM payments";
        while sqlx::query_scalar::<_, i64>(count).fetch_one(&mut db).await.is_ok_and(|count| count < 2) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    Worker::new("shop", store, broker.queue("orders"))
        .state(bank)
        .handler::<order_placed>()
        .retry(RetryPolicy::new().min_delay(std::time::Duration::from_millis(100)))
        .run_until(paid)
        .await?;
    assert_eq!((provider.charged("e-1"), provider.charged("e-2")), (1, 1));
    Ok(())
}
