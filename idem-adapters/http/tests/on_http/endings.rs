//! Transactions that a handler does not give back, takes twice, or ends by itself.

use std::time::Duration;

use axum::http::Method;
use idem_http::{Tx, TxError};
use serde_json::json;

use super::service::{Served, Service, answer, effects, paid, serve};

on_each_database! {
    a_transaction_that_is_not_given_back_is_never_committed
    a_second_transaction_is_an_error
    a_handler_that_ends_its_transaction_gets_no_reply
    a_refusal_behind_a_commit_is_an_error
    a_route_in_two_layers_is_an_error
    nothing_of_a_request_is_left_for_those_who_keep_it
    a_body_that_stalls_or_panics_is_undone
}

async fn a_transaction_that_is_not_given_back_is_never_committed<W: Served>(world: W) {
    let service = Service::start(&world).await;
    service.order("k-1", "hold").await.is_problem(500);
    // It comes back late, and its connection is closed.
    let kept = service.shop.kept.lock().unwrap().take();
    assert!(kept.is_some());
    drop(kept);
    assert_eq!(service.order("k-1", "").await.status, 201, "the key is free");
    assert_eq!(paid(&world).await, 1);
}

async fn a_second_transaction_is_an_error<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for _ in 0..2 {
        answer(service.request(Method::POST, "/greedy", &["k-1"], json!({}))).await.is_problem(500);
    }
    assert_eq!(service.order("k-1", "").await.status, 201);
}

async fn a_handler_that_ends_its_transaction_gets_no_reply<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for then in ["rollback", "commit"] {
        service.send(then, json!({ "id": then, "then": then })).await.is_problem(500);
    }
    // SQLite refuses the COMMIT. PostgreSQL does not, and the claim prevents a second effect.
    let (effects, status) = if W::FEATURES.refuses_commit { (0, 500) } else { (1, 409) };
    assert_eq!(paid(&world).await, effects);
    service.send("commit", json!({ "id": "commit", "then": "commit" })).await.is_problem(status);
    assert_eq!(paid(&world).await, effects);
}

/// The client must not hear that nothing was done.
async fn a_refusal_behind_a_commit_is_an_error<W: Served>(world: W) {
    let service = Service::start(&world).await;
    let status = service.order("k-1", "commit and refuse").await.status;
    // SQLite refuses the COMMIT, so nothing was done.
    let (expected, effects) = if W::FEATURES.refuses_commit { (402, 0) } else { (500, 1) };
    assert_eq!((status, paid(&world).await), (expected, effects));
}

/// The inner layer would wait for the outer one.
async fn a_route_in_two_layers_is_an_error<W: Served>(world: W) {
    let service = Service::start(&world).await;
    let url = serve(service.app.clone().route_layer(service.requests.layer())).await;
    let request = service.request(Method::POST, "/payments", &["k-1"], json!({ "id": "a" })).build().unwrap();
    let twice = reqwest::Client::new().post(format!("{url}/payments")).headers(request.headers().clone());
    answer(twice.body(r#"{"id":"a"}"#)).await.is_problem(500);
    assert_eq!((service.shop.calls(), paid(&world).await), (0, 0));
}

async fn nothing_of_a_request_is_left_for_those_who_keep_it<W: Served>(world: W) {
    let service = Service::start(&world).await;
    assert_eq!(answer(service.request(Method::POST, "/keeping", &["k-1"], json!({}))).await.status, 200);
    let kept = std::mem::take(&mut *service.shop.extensions.lock().unwrap());
    assert_eq!(Tx::<W::Connection>::of(&kept).err(), Some(TxError::Taken));
    assert_eq!(service.order("k-2", "").await.status, 201, "its connection is free");
}

async fn a_body_that_stalls_or_panics_is_undone<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.handler_timeout(Duration::from_millis(500))).await;
    service.order("k-1", "stall").await.is_problem(503);
    service.order("k-1", "panic later").await.is_problem(500);
    assert_eq!(paid(&world).await, 0);
    assert_eq!(service.order("k-1", "").await.status, 201);
}
