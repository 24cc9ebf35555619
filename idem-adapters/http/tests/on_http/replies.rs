//! Replies: kept, sent again, and removed.

use std::time::Duration;

use axum::http::Method;
use idem_conformance::store::Setup;
use idem_core::Key;
use idem_core::operator::{Asked, Forgotten, Operator, Verdict};
use idem_core::store::Consumers as _;
use serde_json::json;

use super::service::{Served, Service, answer, effects, paid, rows};

on_each_database! {
    a_repeat_gets_the_reply_byte_for_byte
    a_redirection_is_a_reply_too
    a_refusal_is_undone_and_its_key_may_be_used_again
    a_redirect_that_is_followed_with_the_key_keeps_nothing
    a_refusal_that_the_handler_keeps_is_sent_again
    a_reply_that_cannot_be_kept_is_an_error
    a_claim_without_a_reply_never_runs
    a_reply_is_removed_with_its_claim
    a_request_that_an_operator_forgets_runs_again
    a_retention_of_zero_is_refused
}

async fn a_repeat_gets_the_reply_byte_for_byte<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for then in ["", "long"] {
        let key = format!("k-{then}");
        let order = || json!({ "id": "a", "then": then });
        let first = service.send(&key, order()).await;
        assert_eq!((first.status, first.is_replayed()), (201, false));
        for _ in 0..2 {
            let again = service.send(&key, order()).await;
            assert!(again.is_replayed() && again.status == first.status && again.body == first.body, "{again:?}");
            for name in ["content-type", "location", "content-length"] {
                assert_eq!(again.header(name), first.header(name), "{name}");
            }
            assert_eq!(again.header("set-cookie"), None, "a cookie is for one client");
        }
    }
    assert_eq!((service.shop.calls(), paid(&world).await), (2, 2));
    assert_eq!(rows(&world, &world.own("outbox_messages")).await, 2, "what is staged rides along");
}

async fn a_redirection_is_a_reply_too<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for is_replayed in [false, true] {
        // A client that follows it would ask for another page.
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let request = service.request(Method::POST, "/payments", &["k-1"], json!({ "id": "a", "then": "redirect" }));
        let response = client.execute(request.build().unwrap()).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["location"]),
            (303, &"/payments/7".parse().unwrap())
        );
        assert_eq!(response.headers().contains_key("idempotent-replayed"), is_replayed);
    }
    assert_eq!(paid(&world).await, 1);
}

async fn a_redirect_that_is_followed_with_the_key_keeps_nothing<W: Served>(world: W) {
    let service = Service::start(&world).await;
    // The client sends the request again, to the other address, where its order redirects it again.
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let request = service.request(Method::POST, "/payments", &["k-1"], json!({ "id": "a", "then": "move" }));
    assert_eq!(client.execute(request.build().unwrap()).await.unwrap().status().as_u16(), 307);
    let there = service.request(Method::POST, "/refunds", &["k-1"], json!({ "id": "a" }));
    assert_eq!((answer(there).await.status, paid(&world).await), (201, 1));
}

async fn a_refusal_is_undone_and_its_key_may_be_used_again<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for (then, status) in [("refuse", 402), ("fail", 500), ("panic", 500)] {
        for _ in 0..2 {
            let answer = service.send("k-1", json!({ "id": "a", "then": then })).await;
            assert_eq!((answer.status, answer.is_replayed()), (status, false), "{then}");
        }
    }
    assert_eq!((service.shop.calls(), paid(&world).await), (6, 0));
    let own = ["processed_messages", "replies", "outbox_messages"].map(|table| world.own(table));
    for table in own {
        assert_eq!(rows(&world, &table).await, 0, "{table}");
    }
    // The handler answers before it has used its transaction.
    let broken = service.request(Method::POST, "/payments", &["k-1"], json!({})).body("{");
    assert_eq!(answer(broken).await.status, 400);
    assert_eq!(service.order("k-1", "").await.status, 201);
    assert_eq!(paid(&world).await, 1);
}

async fn a_refusal_that_the_handler_keeps_is_sent_again<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for is_replayed in [false, true] {
        let answer = service.order("k-1", "keep").await;
        assert_eq!(
            (answer.status, answer.is_replayed(), &answer.body[..]),
            (402, is_replayed, &b"no money for k-1"[..])
        );
    }
    assert_eq!((service.shop.calls(), paid(&world).await), (1, 1), "what it has written is committed");
}

async fn a_reply_that_cannot_be_kept_is_an_error<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for then in ["stream", "large"] {
        service.send("k-1", json!({ "id": "a", "then": then })).await.is_problem(500);
    }
    assert_eq!(paid(&world).await, 0);
    assert_eq!(service.order("k-1", "").await.status, 201);
}

async fn a_claim_without_a_reply_never_runs<W: Served>(world: W) {
    let service = Service::start(&world).await;
    assert_eq!(service.order("k-1", "").await.status, 201);
    // As if the application had made the claim by itself.
    world.run(&format!("DELETE FROM {}", world.own("replies"))).await;
    service.order("k-1", "").await.is_problem(409);
    assert_eq!(service.shop.calls(), 1);
}

async fn a_reply_is_removed_with_its_claim<W: Served>(world: W) {
    let service = Service::start(&world).await;
    let (claims, replies) = (world.own("processed_messages"), world.own("replies"));
    assert_eq!(service.order("old", "").await.status, 201);
    let earlier = W::earlier("processed_at", Duration::from_secs(25 * 3600));
    world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert_eq!(service.order("new", "").await.status, 201);
    let store = world.store(Setup::default()).await.unwrap();
    assert_eq!(store.prune().await.unwrap(), 1);
    assert_eq!((rows(&world, &claims).await, rows(&world, &replies).await), (1, 1));
    assert!(service.order("new", "").await.is_replayed());
    assert!(!service.order("old", "").await.is_replayed(), "after its retention it is a new request");
}

async fn a_request_that_an_operator_forgets_runs_again<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for id in ["k-1", "k-2"] {
        assert_eq!(service.order(id, "").await.status, 201);
    }
    let operator = Operator::of(&world.store(Setup::default()).await.unwrap(), "payments-api").await.unwrap();
    let handler = operator.handler("request").await.unwrap();
    let mut asked = Asked::new("payments-api/request", "acme,k-1");
    asked.payload = Some(json!({ "id": "k-1", "then": "" }).to_string().into());
    let why = operator.why(&asked).await.unwrap();
    assert!(matches!(why.verdict, Verdict::Duplicate { .. }), "{why:?}");
    let forgotten = operator.forget(&handler, &Key::composite(&[&"acme", &"k-1"]).unwrap()).await;
    assert!(matches!(forgotten.unwrap(), Forgotten::Done { .. }));
    assert_eq!(rows(&world, &world.own("replies")).await, 1, "nothing would ever remove the other one");
    assert!(!service.order("k-1", "").await.is_replayed());
    assert!(service.order("k-2", "").await.is_replayed());
}

async fn a_retention_of_zero_is_refused<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests.retention(Duration::ZERO)).await;
    service.order("k-1", "").await.is_problem(503);
    assert_eq!(service.shop.calls(), 0);
}
