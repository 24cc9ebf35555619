//! Bodies of requests that are too large, or end early.

use std::fmt::Write as _;

use axum::http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::service::{Served, Service, answer, effects, paid};

on_each_database! {
    a_body_over_the_limit_is_refused
    a_body_that_ends_early_has_no_effect
    a_body_that_stalls_holds_no_transaction
}

/// Sends this text behind the head of a request, and returns the answer.
async fn raw<W: Served>(service: &Service<W>, header: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(service.url.trim_start_matches("http://")).await.unwrap();
    let head =
        "POST /payments HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntenant: acme\r\nidempotency-key: k-1\r\n";
    let text = format!("{head}content-type: application/json\r\n{header}\r\n\r\n{body}");
    socket.write_all(text.as_bytes()).await.unwrap();
    socket.shutdown().await.unwrap();
    let mut answer = Vec::new();
    // The server may close the connection before it has read everything.
    let _ = socket.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn a_body_over_the_limit_is_refused<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.max_body(100)).await;
    let order = json!({ "id": "a".repeat(100) });
    answer(service.request(Method::POST, "/payments", &["k-1"], order.clone())).await.is_problem(413);
    let mut chunks = String::new();
    for chunk in order.to_string().as_bytes().chunks(10) {
        write!(chunks, "{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)).unwrap();
    }
    let answer = raw(&service, "transfer-encoding: chunked", &format!("{chunks}0\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(service.shop.calls(), 0);
    assert_eq!(service.order("k-1", "").await.status, 201);
}

async fn a_body_that_ends_early_has_no_effect<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for (header, body) in [("content-length: 100", "{\"id\":"), ("transfer-encoding: chunked", "6\r\n{\"id\":\r\n")] {
        let answer = raw(&service, header, body).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    assert_eq!((service.shop.calls(), paid(&world).await), (0, 0));
    assert_eq!(service.order("k-1", "").await.status, 201);
}

/// More clients than there are connections, none of which has sent its body.
async fn a_body_that_stalls_holds_no_transaction<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests).await;
    let mut stalled = Vec::new();
    for key in ["", "idempotency-key: k-0\r\n"].repeat(20) {
        let mut socket = TcpStream::connect(service.url.trim_start_matches("http://")).await.unwrap();
        let head = format!(
            "POST /payments HTTP/1.1\r\nhost: localhost\r\ntenant: acme\r\n{key}content-type: application/json\r\n\
             content-length: 100\r\nexpect: 100-continue\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        // The server says so when somebody waits for the body.
        let mut answer = [0; 25];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        stalled.push(socket);
    }
    assert_eq!(service.order("k-1", "").await.status, 201);
}
