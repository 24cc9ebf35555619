//! Health and metrics over HTTP: `GET /ready` and `GET /metrics`.
//!
//! `cargo run -p idem-examples --example http` needs no server. It requests both paths itself, prints the responses
//! (without the quantiles), and ends.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Router, routing::get};
use idem::Health;
use idem::prelude::*;
use idem_test::Broker;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sqlx::SqliteConnection;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

#[derive(serde::Deserialize, serde::Serialize)]
struct OrderPaid {
    event_id: String,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(_event: OrderPaid, _tx: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

/// Use it for readiness, not for liveness: a worker recovers by itself after an outage of its broker or database, and a
/// restart does not help.
async fn ready(State(health): State<Health>) -> (StatusCode, String) {
    if health.is_ready() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let why = || format!("broker {}, database {}\n", health.broker(), health.database());
    (StatusCode::SERVICE_UNAVAILABLE, health.paused().unwrap_or_else(why))
}

fn api(health: Health, metrics: PrometheusHandle) -> Router {
    let metrics = get(move || std::future::ready(metrics.render()));
    Router::new().route("/ready", get(ready)).with_state(health).route("/metrics", metrics)
}

/// Requests a path, and prints the answer.
async fn request(url: &str) -> Result<(StatusCode, String), BoxError> {
    let answer = reqwest::get(url).await?;
    let (status, text) = (answer.status(), answer.text().await?);
    println!("\nGET {url}: {status}");
    text.lines().filter(|line| !line.contains("quantile=")).for_each(|line| println!("    {line}"));
    Ok((status, text))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Install the recorder before creating the worker. Each GET /metrics also drains it; without requests, call
    // `run_upkeep`.
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let directory = tempfile::tempdir()?;
    let store = Sqlite::connect(&format!("sqlite://{}", directory.path().join("shop.db").display())).await?;
    let broker = Broker::new();
    for _ in 0..2 {
        broker.publish_json("orders", &OrderPaid { event_id: "e-1".to_owned() })?;
    }

    let settled = Arc::new(Semaphore::new(0));
    let settle = settled.clone();
    let worker = Worker::new("billing", store, broker.queue("orders"))
        .handler::<order_paid>()
        .observe(move |_observed| settle.add_permits(1));

    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = format!("http://{}", listener.local_addr()?);
    let (ready, all) = (format!("{address}/ready"), format!("{address}/metrics"));
    tokio::spawn(axum::serve(listener, api(worker.health(), metrics)).into_future());
    assert_eq!(request(&ready).await?.0, StatusCode::SERVICE_UNAVAILABLE, "the worker has not started");

    let (done, until_done) = oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run_until(async { drop(until_done.await) }));
    let _both = settled.acquire_many(2).await?;
    assert_eq!(request(&ready).await?.0, StatusCode::OK);
    let (_, metrics) = request(&all).await?;
    for outcome in ["processed", "duplicate"] {
        let line = format!(r#"idem_deliveries_total{{consumer="billing",handler="order_paid",outcome="{outcome}"}} 1"#);
        assert!(metrics.contains(&line), "{line}");
    }
    drop(done);
    worker.await??;
    Ok(())
}
