//! A web request that a client may repeat: it claims its key and stages a message in a transaction of its own.
//!
//! `cargo run -p idem-examples --example request` needs no server: it sends the requests itself, and ends. SQLite
//! allows one writer, so the handler takes the connection; with PostgreSQL it would begin a transaction of a pool.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::{Router, body::Bytes, routing::post};
use idem::prelude::{BoxError, Key, Outgoing, Relay, Sqlite};
use idem::{Fingerprint, outbox::OwnClaim};
use idem_test::MemorySink;
use sqlx::{Connection, SqliteConnection};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

struct Shop {
    store: Sqlite,
    db: Mutex<SqliteConnection>,
}

async fn place_order(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(Key::of);
    let Some(Ok(key)) = key else { return (StatusCode::BAD_REQUEST, "set an Idempotency-Key".to_owned()) };
    match place(&shop, key, &body).await {
        Ok(OwnClaim::New) => (StatusCode::CREATED, "placed".to_owned()),
        Ok(OwnClaim::Duplicate) => (StatusCode::OK, "was placed before".to_owned()),
        Ok(OwnClaim::Conflict) => (StatusCode::UNPROCESSABLE_ENTITY, "another order had this key".to_owned()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Claim, order and message are committed together, or not at all. An error rolls back, and the client may try again.
async fn place(shop: &Shop, key: Key, order: &[u8]) -> Result<OwnClaim, BoxError> {
    let mut db = shop.db.lock().await;
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
    let claim = shop.store.claim_key(&mut tx, "shop-api", "place_order", key, Fingerprint::of(order)).await?;
    if claim.is_new() {
        sqlx::query("INSERT INTO orders (document) VALUES (?)").bind(order).execute(&mut *tx).await?;
        shop.store.outbox("shop").stage(&mut tx, [Outgoing::new("order.placed", order.to_vec())]).await?;
    }
    tx.commit().await?;
    shop.store.outbox("shop").wake();
    Ok(claim)
}

/// Sends a request, and returns the status of the answer.
async fn request(url: &str, key: &str, order: &'static str) -> Result<u16, BoxError> {
    let answer = reqwest::Client::new().post(url).header("Idempotency-Key", key).body(order).send().await?;
    let status = answer.status();
    println!("{key:8} {order:22} {status}: {}", answer.text().await?);
    Ok(status.as_u16())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE orders (document BLOB)").execute(&mut db).await?;

    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let orders = format!("http://{}/orders", listener.local_addr()?);
    let shop = Arc::new(Shop { store: store.clone(), db: Mutex::new(db) });
    let api = Router::new().route("/orders", post(place_order)).with_state(shop);
    tokio::spawn(async move { axum::serve(listener, api).await });

    let (one, two) = (r#"{"item":"bread"}"#, r#"{"item":"wine"}"#);
    assert_eq!(request(&orders, "k-1", one).await?, 201);
    assert_eq!(request(&orders, "k-1", one).await?, 200, "a copy");
    assert_eq!(request(&orders, "k-1", two).await?, 422, "a conflict");
    assert_eq!(request(&orders, "k-2", two).await?, 201);

    // In a service, the relay runs all the time, here or in a process of its own, with the sink of a broker.
    let sink = MemorySink::new();
    Relay::new("shop", store, sink.clone()).run_until(sink.wait_for(|sink| sink.published().len() == 2)).await?;
    sink.published().iter().for_each(|message| println!("published {} {}", message.to(), message.id()));
    Ok(())
}
