//! A web request that a client may repeat: it runs once, and each repeat gets its reply.
//!
//! `cargo run -p idem-examples --example request` needs no server: it sends the requests itself, and ends.

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::post};
use idem::http::{Outbox, Requests, Tx};
use idem::prelude::{BoxError, Relay, Sqlite};
use idem_test::MemorySink;
use sqlx::{Connection, SqliteConnection};
use tokio::net::TcpListener;

#[derive(serde::Deserialize, serde::Serialize)]
struct Order {
    item: String,
}

/// Order, message and reply are committed together, with the key of the request. An error undoes all of it.
async fn place(mut tx: Tx<SqliteConnection>, outbox: Outbox, Json(order): Json<Order>) -> Result<Response, Failed> {
    let insert = sqlx::query("INSERT INTO orders (item) VALUES (?)").bind(&order.item).execute(&mut *tx).await?;
    outbox.publish("order.placed", &order)?;
    Ok((StatusCode::CREATED, format!("order {}: {}", insert.last_insert_rowid(), order.item)).into_response())
}

struct Failed(BoxError);

impl<E: Into<BoxError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("the order failed: {}", self.0)).into_response()
    }
}

/// The client, as authentication would tell it. Each one has keys of its own.
fn client(parts: &Parts) -> Result<String, BoxError> {
    Ok(parts.headers.get("client").ok_or("no client")?.to_str()?.to_owned())
}

/// Sends an order under a key, and returns the answer.
async fn send(url: &str, key: &str, item: &str) -> Result<(u16, bool, String), BoxError> {
    let body = format!(r#"{{"item":"{item}"}}"#);
    let request = reqwest::Client::new().post(url).header("client", "mary").header("Idempotency-Key", key);
    let answer = request.header("content-type", "application/json").body(body).send().await?;
    let is_again = answer.headers().contains_key("idempotent-replayed");
    let answer = (answer.status().as_u16(), is_again, answer.text().await?);
    println!("{key} {item:5} {answer:?}");
    Ok(answer)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let store = Sqlite::connect(&url).await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT)").execute(&mut db).await?;

    let requests = Requests::new("shop-api", store.clone()).scope(client).required();
    let api = Router::new().route("/orders", post(place)).route_layer(requests.layer());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let orders = format!("http://{}/orders", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, api).await });

    assert_eq!(send(&orders, "k-1", "bread").await?, (201, false, "order 1: bread".to_owned()));
    assert_eq!(send(&orders, "k-1", "bread").await?, (201, true, "order 1: bread".to_owned()), "a repeat");
    assert_eq!(send(&orders, "k-1", "wine").await?.0, 422, "another order with its key");

    // In a service, the relay runs all the time, with the sink of a broker.
    let sink = MemorySink::new();
    Relay::new("shop-api", store, sink.clone()).run_until(sink.wait_for(|sink| !sink.published().is_empty())).await?;
    Ok(())
}
