//! Keys: good ones, bad ones, and whose they are.

use axum::http::Method;
use serde_json::json;

use super::service::{Served, Service, answer, effects, paid, rows};

on_each_database! {
    a_request_without_one_good_key_is_refused
    a_request_runs_without_a_key_where_none_is_required
    a_quoted_key_and_a_bare_one_are_one_key
    a_key_is_another_one_for_another_tenant
    a_request_of_nobody_is_refused
    a_key_on_another_route_or_with_another_body_is_a_conflict
    other_methods_pass_through
}

async fn a_request_without_one_good_key_is_refused<W: Served>(world: W) {
    let service = Service::start(&world).await;
    let long = "x".repeat(256);
    let bad = [
        &[][..],
        &["\"a"],
        &["a\"b"],
        &["a b"],
        &["a\tb"],
        &["\"a\\b\""],
        &[""],
        &[&*long],
        &["a", "a"],
        &["\"a\", \"b\""],
    ];
    for keys in bad {
        let order = json!({ "id": "a" });
        answer(service.request(Method::POST, "/payments", keys, order)).await.is_problem(400);
    }
    assert_eq!(service.shop.calls(), 0);
    assert_eq!(service.send(&"x".repeat(255), json!({ "id": "a" })).await.status, 201);
}

async fn a_request_runs_without_a_key_where_none_is_required<W: Served>(world: W) {
    effects(&world).await;
    let service = Service::with(&world, |requests| requests).await;
    for (then, status) in [("", 201), ("", 201), ("refuse", 402), ("fail", 500), ("stream", 200)] {
        let order = json!({ "id": "a", "then": then });
        assert_eq!(answer(service.request(Method::POST, "/payments", &[], order)).await.status, status, "{then}");
    }
    assert_eq!((paid(&world).await, rows(&world, &world.own("outbox_messages")).await), (3, 3));
    assert_eq!(rows(&world, &world.own("replies")).await, 0);
}

async fn a_quoted_key_and_a_bare_one_are_one_key<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for (key, is_replayed) in [("k-1", false), ("\"k-1\"", true), ("\"k-1\";version=1", true)] {
        let answer = service.send(key, json!({ "id": "a" })).await;
        assert_eq!((answer.status, answer.is_replayed()), (201, is_replayed), "{key}");
    }
    assert_eq!((service.shop.calls(), paid(&world).await), (1, 1));
}

async fn a_key_is_another_one_for_another_tenant<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for tenant in ["acme", "zeta"] {
        let request = service.request(Method::POST, "/payments", &["k-1"], json!({ "id": tenant }));
        // The client sends the later one of two values of a header as a second one.
        let mut request = request.build().unwrap();
        request.headers_mut().insert("tenant", tenant.parse().unwrap());
        let body = reqwest::Client::new().execute(request).await.unwrap().text().await.unwrap();
        assert_eq!(body, json!({ "paid": tenant }).to_string());
    }
    assert_eq!(paid(&world).await, 2);
}

async fn a_request_of_nobody_is_refused<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for tenant in [None, Some("")] {
        let mut request = service.request(Method::POST, "/payments", &["k-1"], json!({ "id": "a" })).build().unwrap();
        request.headers_mut().remove("tenant");
        tenant.map(|tenant| request.headers_mut().insert("tenant", tenant.parse().unwrap()));
        assert_eq!(reqwest::Client::new().execute(request).await.unwrap().status(), 403);
    }
    assert_eq!(service.shop.calls(), 0);
}

async fn a_key_on_another_route_or_with_another_body_is_a_conflict<W: Served>(world: W) {
    let service = Service::start(&world).await;
    let order = || json!({ "id": "secret" });
    assert_eq!(service.send("k-1", order()).await.status, 201);
    for (method, path, order) in [
        (Method::POST, "/refunds", order()),
        (Method::POST, "/payments", json!({ "id": "other" })),
        (Method::POST, "/payments?dry=1", order()),
        (Method::POST, "/greedy", order()),
    ] {
        let answer = answer(service.request(method, path, &["k-1"], order)).await;
        answer.is_problem(422);
        assert!(!String::from_utf8_lossy(&answer.body).contains("secret"), "{path}");
    }
    assert_eq!((service.shop.calls(), paid(&world).await), (1, 1));
    assert!(service.send("k-1", order()).await.is_replayed());
}

async fn other_methods_pass_through<W: Served>(world: W) {
    let service = Service::start(&world).await;
    for method in [Method::GET, Method::HEAD] {
        for keys in [&[][..], &["k-1"], &["a b"]] {
            let answer = answer(service.request(method.clone(), "/payments", keys, json!({}))).await;
            assert_eq!((answer.status, answer.is_replayed()), (200, false), "{method}");
        }
    }
    // Without the layer there is no transaction.
    let order = || json!({ "id": "a" });
    for (method, path) in [(Method::PUT, "/payments"), (Method::POST, "/outside")] {
        assert_eq!(answer(service.request(method, path, &["k-1"], order())).await.status, 500);
    }
    assert_eq!(answer(service.request(Method::POST, "/nowhere", &["k-1"], order())).await.status, 404);
    // Nothing has claimed the key.
    assert_eq!(service.send("k-1", order()).await.status, 201);
    assert_eq!(paid(&world).await, 1);
}
