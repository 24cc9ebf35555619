//! The page for people on call, in a service with its own login: they find it at `/ops/idem`, and what they change has their names.
//!
//! `cargo run -p idem-examples --example page` needs no server: it requests its page twice, and ends. With an address,
//! `-- 127.0.0.1:4040`, it serves browsers until ctrl-c; the password of `anna` is `secret`.

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine};
use idem::prelude::*;
use idem_test::Broker;
use sqlx::SqliteConnection;
use tokio::net::TcpListener;

/// Who has logged in. The login puts it into the request, and the page reads it there.
#[derive(Clone)]
struct Person(String);

/// HTTP Basic. A cookie, a token or the header of a proxy do as well.
async fn login(mut request: Request, next: Next) -> Response {
    let Some(person) = person(&request) else {
        let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"ops\"")];
        return (StatusCode::UNAUTHORIZED, ask, "log in\n").into_response();
    };
    request.extensions_mut().insert(person);
    next.run(request).await
}

fn person(request: &Request) -> Option<Person> {
    let basic = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = String::from_utf8(BASE64_STANDARD.decode(basic).ok()?).ok()?;
    (pair == "anna:secret").then(|| Person("anna".to_owned()))
}

fn service(store: &Sqlite) -> Router {
    let page = idem::page::router(store)
        .hosts(["ops.example.com"])
        .payloads()
        .actions(|request| request.extensions.get::<Person>().map(|person| person.0.clone()));
    Router::new().nest_service("/ops/idem", page.into_router()).layer(from_fn(login))
}

#[derive(serde::Deserialize, serde::Serialize)]
struct OrderPaid {
    event_id: String,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(event: OrderPaid, _tx: &mut SqliteConnection) -> Result<(), BoxError> {
    Err(permanent(format!("the bank knows no payment {}", event.event_id)))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let store = Sqlite::connect(&format!("sqlite://{}", directory.path().join("shop.db").display())).await?;
    let broker = Broker::new();
    broker.publish_json("orders", &OrderPaid { event_id: "e-1".to_owned() })?;
    let worker = Worker::new("billing", store.clone(), broker.queue("orders")).handler::<order_paid>();
    worker.run_until(async move { broker.idle().await }).await?;

    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let url = format!("http://{}/ops/idem/", listener.local_addr()?);
    println!("{url}");
    tokio::spawn(axum::serve(listener, service(&store)).into_future());
    if address.is_some() {
        return Ok(tokio::signal::ctrl_c().await?);
    }
    let client = reqwest::Client::new();
    assert_eq!(client.get(&url).send().await?.status(), StatusCode::UNAUTHORIZED);
    let page = client.get(&url).basic_auth("anna", Some("secret")).send().await?.text().await?;
    assert!(page.contains("the bank knows no payment"), "{page}");
    Ok(())
}
