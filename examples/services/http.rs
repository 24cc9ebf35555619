//! Health and metrics over HTTP: `GET /ready` and `GET /metrics`.
//!
//! `cargo run -p idem-examples --example http` needs no server. It requests both paths itself, prints the responses
//! (without the quantiles), and ends.

use std::net::SocketAddr;
use std::sync::Arc;

use idem::Health;
use idem::prelude::*;
use idem_test::Broker;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use sqlx::SqliteConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

#[derive(serde::Deserialize, serde::Serialize)]
struct OrderPaid {
    event_id: String,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(_event: OrderPaid, _tx: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

/// Returns the response for one path, for any HTTP framework. Use it for readiness, not for liveness: a worker recovers
/// by itself after an outage of its broker or database, and a restart does not help.
fn answer(path: &str, health: &Health, metrics: &PrometheusHandle) -> (&'static str, String) {
    match path {
        "/ready" if health.is_ready() => ("200 OK", "ready\n".to_owned()),
        "/ready" => {
            let why = || format!("broker {}, database {}\n", health.broker(), health.database());
            ("503 Service Unavailable", health.paused().unwrap_or_else(why))
        }
        "/metrics" => ("200 OK", metrics.render()),
        _ => ("404 Not Found", String::new()),
    }
}

/// Serves as much HTTP as the example needs, one request after another; a service uses a framework.
async fn serve(listener: TcpListener, health: Health, metrics: PrometheusHandle) {
    while let Ok((mut client, _)) = listener.accept().await {
        let mut request = [0; 1024];
        let Ok(length) = client.read(&mut request).await else { continue };
        let request = String::from_utf8_lossy(&request[..length]);
        let (status, body) = answer(request.split(' ').nth(1).unwrap_or_default(), &health, &metrics);
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}", body.len());
        let _ = client.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes()).await;
    }
}

async fn get(address: SocketAddr, path: &str) -> Result<String, BoxError> {
    let mut server = TcpStream::connect(address).await?;
    server.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    server.read_to_string(&mut answer).await?;
    println!("\nGET {path}");
    answer.lines().filter(|line| !line.contains("quantile=")).for_each(|line| println!("    {line}"));
    Ok(answer)
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
        .observe(move |_delivery, _outcome| settle.add_permits(1));

    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, worker.health(), metrics));
    assert!(get(address, "/ready").await?.starts_with("HTTP/1.1 503 "), "the worker has not started");

    let (done, until_done) = oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run_until(async { drop(until_done.await) }));
    let _both = settled.acquire_many(2).await?;
    assert!(get(address, "/ready").await?.starts_with("HTTP/1.1 200 "));
    let metrics = get(address, "/metrics").await?;
    for outcome in ["processed", "duplicate"] {
        let line = format!(r#"idem_deliveries_total{{consumer="billing",handler="order_paid",outcome="{outcome}"}} 1"#);
        assert!(metrics.contains(&line), "{line}");
    }
    drop(done);
    worker.await??;
    Ok(())
}
