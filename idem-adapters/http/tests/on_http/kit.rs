//! The kit for users: every way in which clients repeat a request.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, StatusCode};
use axum::response::Response;
use axum::routing::post;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use idem_conformance::store::Setup;
use idem_core::BoxError;
use idem_http::Requests;
use tower_service::Service;

use super::service::{self, Served, paid, serve};

on_each_database! {
    the_kit_finds_one_effect_in_each_way
    the_kit_finds_one_effect_at_two_instances_behind_a_proxy
    the_kit_finds_one_effect_wherever_a_process_dies
    the_kit_finds_requests_that_run_twice
}

fn payment(path: &str) -> impl FnMut(u32) -> axum::http::Result<Request<Bytes>> {
    move |number| {
        let request = Request::post(path).header("tenant", "acme").header("content-type", "application/json");
        request.header("idempotency-key", format!("k-{number}")).body(Bytes::from(r#"{"id":"a"}"#))
    }
}

async fn the_kit_finds_one_effect_in_each_way<W: Served>(world: W) {
    let started = service::Service::start(&world).await;
    let effects = async || Ok(paid(&world).await);
    idem_test::requests(started.app.clone()).have_one_effect(payment("/payments"), effects).await.unwrap();
}

/// Starts a reverse proxy, which passes each request to the next one of these instances. Returns its address.
async fn round_robin(instances: [String; 2]) -> String {
    let (next, client) = (Arc::<AtomicUsize>::default(), reqwest::Client::new());
    let pass = move |request: Request<Body>| {
        let instance = &instances[next.fetch_add(1, SeqCst) % instances.len()];
        let (url, client) = (format!("{instance}{}", request.uri()), client.clone());
        async move { passed(&client, url, request).await.map_err(|_| StatusCode::BAD_GATEWAY) }
    };
    serve(Router::new().fallback(pass)).await
}

/// Sends a request by a socket.
async fn passed<B>(client: &reqwest::Client, url: String, request: Request<B>) -> Result<Response, BoxError>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
{
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    let sent = client.request(head.method, url).headers(head.headers).body(body).send().await?;
    Ok(Response::from(sent).map(Body::new))
}

/// A client of the service at this address, as the kit takes it.
#[derive(Clone)]
struct Remote {
    url: String,
    client: reqwest::Client,
}

impl Service<Request<Full<Bytes>>> for Remote {
    type Response = Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let (url, client) = (format!("{}{}", self.url, request.uri()), self.client.clone());
        Box::pin(async move { passed(&client, url, request).await })
    }
}

async fn the_kit_finds_one_effect_at_two_instances_behind_a_proxy<W: Served>(world: W) {
    service::effects(&world).await;
    let (one, other) = (
        service::Service::with(&world, Requests::required).await,
        service::Service::with(&world, Requests::required).await,
    );
    let url = round_robin([one.url.clone(), other.url.clone()]).await;
    let effects = async || Ok(paid(&world).await);
    let trial = idem_test::requests(Remote { url, client: reqwest::Client::new() });
    trial.have_one_effect(payment("/payments"), effects).await.unwrap();
    assert!(one.shop.calls() > 0 && other.shop.calls() > 0, "both instances run requests");
}

async fn the_kit_finds_one_effect_wherever_a_process_dies<W: Served>(world: W) {
    service::effects(&world).await;
    // The tables of idem.
    drop(world.store(Setup::default()).await.unwrap());
    let (shop, world) = (service::Shop::of(&world), Arc::new(world));
    let of = world.clone();
    let connect = move || {
        let of = of.clone();
        async move { of.store(Setup::default()).await }
    };
    let trial = idem_test::requests_of(connect, move |store| {
        let requests = Requests::new("payments-api", store).scope(service::tenant).required();
        service::router(shop.clone(), &requests)
    });
    trial.have_one_effect(payment("/payments"), async || Ok(paid(&*world).await)).await.unwrap();
}

async fn the_kit_finds_requests_that_run_twice<W: Served>(world: W) {
    service::effects(&world).await;
    let table = world.name("effects");
    let (world, insert) = (Arc::new(world), format!("INSERT INTO {table} VALUES ('a')"));
    let shared = world.clone();
    let pay = move || {
        let (world, insert) = (shared.clone(), insert.clone());
        async move {
            world.run(&insert).await;
            "paid"
        }
    };
    let app = Router::new().route("/payments", post(pay));
    let effects = async || Ok::<_, BoxError>(paid(&*world).await);
    let found = idem_test::requests(app).have_one_effect(payment("/payments"), effects).await;
    assert!(found.unwrap_err().to_string().contains("by 2"));
}
