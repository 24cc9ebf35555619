//! Requests that run at once, whose clients are gone, or that take too long.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use tokio::join;

use super::service::{Served, Service, answer, effects, paid};

on_each_database! {
    a_request_whose_key_runs_waits_and_gets_the_reply
    a_request_whose_key_runs_for_longer_is_told_to_come_again
    another_key_runs_meanwhile_or_is_told_to_come_again
    two_instances_have_one_effect
    a_client_that_is_gone_finds_the_reply
    a_late_handler_is_undone
    a_wait_and_a_timeout_may_be_without_end
}

async fn a_request_whose_key_runs_waits_and_gets_the_reply<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.wait(Duration::from_secs(60))).await;
    let first = async {
        service.entered().await;
        service.shop.gate.add_permits(1);
    };
    let orders = || service.order("k-1", "wait");
    let (one, two, three, ()) = join!(orders(), orders(), orders(), first);
    let replayed = [&one, &two, &three].into_iter().filter(|answer| answer.is_replayed()).count();
    assert_eq!((replayed, service.shop.calls(), paid(&world).await), (2, 1, 1));
    assert!(one.body == two.body && two.body == three.body);
}

async fn a_request_whose_key_runs_for_longer_is_told_to_come_again<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.wait(Duration::from_millis(50))).await;
    let second = async {
        service.entered().await;
        let busy = service.order("k-1", "wait").await;
        busy.is_problem(409);
        assert!(busy.header("retry-after").is_some());
        service.shop.gate.add_permits(1);
    };
    let (first, ()) = join!(service.order("k-1", "wait"), second);
    assert_eq!(first.status, 201);
    assert!(service.order("k-1", "wait").await.is_replayed());
    assert_eq!(paid(&world).await, 1);
}

async fn another_key_runs_meanwhile_or_is_told_to_come_again<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.wait(Duration::from_millis(50))).await;
    let other = async {
        service.entered().await;
        let answer = service.order("k-2", "").await;
        match W::FEATURES.concurrent {
            true => assert_eq!(answer.status, 201),
            false => {
                answer.is_problem(503);
                assert!(answer.header("retry-after").is_some());
            }
        }
        service.shop.gate.add_permits(1);
    };
    let (first, ()) = join!(service.order("k-1", "wait"), other);
    assert_eq!((first.status, service.order("k-2", "").await.status), (201, 201));
    assert_eq!(paid(&world).await, 2);
}

async fn two_instances_have_one_effect<W: Served>(world: W) {
    effects(&world).await;
    let (one, other) =
        (Service::with(&world, |requests| requests).await, Service::with(&world, |requests| requests).await);
    for round in 0..10 {
        let (id, body) = (format!("k-{round}"), json!({ "id": format!("k-{round}") }));
        let send = |service: &Service<W>| answer(service.request(Method::POST, "/payments", &[&*id], body.clone()));
        let (a, b, c, d) = join!(send(&one), send(&other), send(&one), send(&other));
        for answer in [&b, &c, &d] {
            assert_eq!((answer.status, &answer.body), (201, &a.body));
        }
    }
    assert_eq!((one.shop.calls() + other.shop.calls(), paid(&world).await), (10, 10));
}

async fn a_client_that_is_gone_finds_the_reply<W: Served>(world: W) {
    let service = Service::start(&world).await;
    let order = || json!({ "id": "a", "then": "wait" });
    let gives_up = service.request(Method::POST, "/payments", &["k-1"], order()).send();
    tokio::select! {
        answered = gives_up => panic!("{answered:?}"),
        () = service.entered() => {}
    }
    service.shop.gate.add_permits(1);
    service.requests.finished().await;
    assert_eq!(paid(&world).await, 1);
    let again = service.send("k-1", order()).await;
    assert_eq!((again.status, again.is_replayed(), service.shop.calls()), (201, true, 1));
}

async fn a_late_handler_is_undone<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.handler_timeout(Duration::from_millis(500))).await;
    let late = service.order("k-1", "wait").await;
    late.is_problem(503);
    assert_eq!(paid(&world).await, 0);
    // Nothing of the first one is kept, so another order may use its key.
    assert_eq!(service.order("k-1", "").await.status, 201);
    assert_eq!(paid(&world).await, 1);
}

async fn a_wait_and_a_timeout_may_be_without_end<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.wait(Duration::MAX).handler_timeout(Duration::MAX)).await;
    for is_replayed in [false, true] {
        let answer = service.order("k-1", "").await;
        assert_eq!((answer.status, answer.is_replayed()), (201, is_replayed));
    }
}
