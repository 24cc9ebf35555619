//! A service with the layer, on a socket, and a client of it.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::{HeaderMap, LOCATION, SET_COOKIE};
use axum::http::{Extensions, Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use http_body::{Frame, SizeHint};
use idem_conformance::store::{Setup, World};
use idem_core::BoxError;
use idem_core::store::Replies;
use idem_http::{Outbox, Reply, Requests, Tx};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A world whose store keeps replies.
pub(crate) trait Served: World<Store: Replies<Connection = <Self as World>::Connection>> {}

impl<W: World<Store: Replies<Connection = <W as World>::Connection>>> Served for W {}

/// What the handlers share with their test.
pub(crate) struct Shop<W: World> {
    table: String,
    /// How often a handler was called.
    pub(crate) calls: AtomicUsize,
    /// Has a permit for each handler that waits.
    pub(crate) entered: Semaphore,
    /// Lets a handler that waits go on for each permit.
    pub(crate) gate: Semaphore,
    /// A transaction that its handler has not given back.
    pub(crate) kept: Mutex<Option<Tx<W::Connection>>>,
    /// The extensions of a request that has ended.
    pub(crate) extensions: Mutex<Extensions>,
}

impl<W: World> Shop<W> {
    pub(crate) fn of(world: &W) -> Arc<Self> {
        Arc::new(Self {
            table: world.name("effects"),
            calls: AtomicUsize::new(0),
            entered: Semaphore::new(0),
            gate: Semaphore::new(0),
            kept: Mutex::default(),
            extensions: Mutex::default(),
        })
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

/// Writes an effect, stages a message, and ends as the order says.
async fn pay<W: World>(
    State(shop): State<Arc<Shop<W>>>,
    mut tx: Tx<W::Connection>,
    outbox: Outbox,
    reply: Reply,
    Json(order): Json<Value>,
) -> Response {
    shop.calls.fetch_add(1, SeqCst);
    let id = order["id"].as_str().unwrap().to_owned();
    W::execute(&mut tx, &format!("INSERT INTO {} VALUES ('{id}')", shop.table)).await.unwrap();
    outbox.publish("payment.made", &id).unwrap();
    let refused = || (StatusCode::PAYMENT_REQUIRED, format!("no money for {id}")).into_response();
    match order["then"].as_str().unwrap_or_default() {
        "redirect" => return (StatusCode::SEE_OTHER, [(LOCATION, "/payments/7")]).into_response(),
        "refuse" => return refused(),
        "keep" => {
            reply.keep();
            return refused();
        }
        "fail" => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "panic" => panic!("as the order says"),
        "stream" => return Body::from_stream(stream::iter(["a", "b"].map(Ok::<_, std::io::Error>))).into_response(),
        "stall" => return Body::new(Broken { panics: false }).into_response(),
        "panic later" => return Body::new(Broken { panics: true }).into_response(),
        "large" => return vec![b'x'; 1024 * 1024 + 1].into_response(),
        "long" => return (StatusCode::CREATED, [0, 255, b'\\', b'\''].repeat(50_000)).into_response(),
        "wait" => {
            shop.entered.add_permits(1);
            shop.gate.acquire().await.unwrap().forget();
        }
        "hold" => *shop.kept.lock().unwrap() = Some(tx),
        "move" => return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, "/refunds")]).into_response(),
        "commit and refuse" => {
            _ = W::execute(&mut tx, "COMMIT").await;
            return refused();
        }
        "commit" => _ = W::execute(&mut tx, "COMMIT").await,
        "rollback" => _ = W::execute(&mut tx, "ROLLBACK").await,
        _ => {}
    }
    let headers = [(LOCATION, format!("/payments/{id}")), (SET_COOKIE, "session=secret".to_owned())];
    (StatusCode::CREATED, headers, Json(json!({ "paid": id }))).into_response()
}

/// A body of one byte that never comes, like that of another service which has stalled.
struct Broken {
    panics: bool,
}

impl HttpBody for Broken {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        assert!(!self.panics, "as the order says");
        Poll::Pending
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(1)
    }
}

/// Keeps the extensions of its request, as a middleware may.
async fn keeping<W: World>(State(shop): State<Arc<Shop<W>>>, request: Request<Body>) -> StatusCode {
    *shop.extensions.lock().unwrap() = request.extensions().clone();
    StatusCode::OK
}

/// Takes two transactions.
async fn greedy<W: World>(_: Tx<W::Connection>, _: Tx<W::Connection>) -> StatusCode {
    StatusCode::OK
}

/// Returns the tenant of a request.
pub(crate) fn tenant(parts: &axum::http::request::Parts) -> Result<String, &'static str> {
    let tenant = parts.headers.get("tenant").and_then(|tenant| tenant.to_str().ok());
    tenant.map(ToOwned::to_owned).ok_or("the request names no tenant")
}

/// Returns the service, over any store with the connections of its world.
pub(crate) fn router<W, S>(shop: Arc<Shop<W>>, requests: &Requests<S>) -> Router
where
    W: World,
    S: Replies<Connection = W::Connection>,
{
    Router::new()
        .route("/payments", post(pay::<W>).get(|| async { "open" }).put(pay::<W>))
        .route("/refunds", post(pay::<W>))
        .route("/greedy", post(greedy::<W>))
        .route("/keeping", post(keeping::<W>))
        .route_layer(requests.layer())
        .route("/outside", post(pay::<W>))
        .with_state(shop)
}

/// Serves at a socket, and returns its address.
pub(crate) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, app).into_future());
    url
}

/// A service on a socket.
pub(crate) struct Service<W: Served> {
    pub(crate) url: String,
    pub(crate) shop: Arc<Shop<W>>,
    pub(crate) requests: Requests<W::Store>,
    pub(crate) app: Router,
    client: reqwest::Client,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Checks that it is one of the layer itself.
    pub(crate) fn is_problem(&self, status: u16) {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let found = (self.status, self.header("content-type"), problem["status"].as_u64());
        assert_eq!(found, (status, Some("application/problem+json"), Some(u64::from(status))), "{problem}");
    }
}

/// Creates the table of effects.
pub(crate) async fn effects<W: World>(world: &W) {
    world.run(&format!("CREATE TABLE {} (id text)", world.name("effects"))).await;
}

/// How many rows a table has.
pub(crate) async fn rows<W: World>(world: &W, table: &str) -> i64 {
    world.number(&format!("SELECT count(*) FROM {table}")).await
}

/// How many effects there are.
pub(crate) async fn paid<W: World>(world: &W) -> i64 {
    rows(world, &world.name("effects")).await
}

impl<W: Served> Service<W> {
    /// Starts a service in a new world, whose requests need a key.
    pub(crate) async fn start(world: &W) -> Self {
        effects(world).await;
        Self::with(world, Requests::required).await
    }

    /// Starts one more service in a world, with these options.
    pub(crate) async fn with(world: &W, options: impl FnOnce(Requests<W::Store>) -> Requests<W::Store>) -> Self {
        let store = world.store(Setup::default()).await.unwrap();
        Self::of(world, store, options).await
    }

    /// Starts one more service with this store.
    pub(crate) async fn of(
        world: &W,
        store: W::Store,
        options: impl FnOnce(Requests<W::Store>) -> Requests<W::Store>,
    ) -> Self {
        let requests = options(Requests::new("payments-api", store).scope(tenant));
        let shop = Shop::of(world);
        let app = router(shop.clone(), &requests);
        let url = serve(app.clone()).await;
        let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().unwrap();
        Self { url, shop, requests, app, client }
    }

    /// Returns a request of the tenant `acme`, to be changed.
    pub(crate) fn request(&self, method: Method, path: &str, keys: &[&str], body: Value) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url)).header("tenant", "acme");
        let request = request.header("content-type", "application/json").body(body.to_string());
        keys.iter().fold(request, |request, key| request.header("idempotency-key", *key))
    }

    /// Sends the order of this id, which is also the key.
    pub(crate) async fn order(&self, id: &str, then: &str) -> Answer {
        self.send(id, json!({ "id": id, "then": then })).await
    }

    /// Sends an order under this key.
    pub(crate) async fn send(&self, key: &str, order: Value) -> Answer {
        answer(self.request(Method::POST, "/payments", &[key], order)).await
    }

    /// Waits until a handler has come to its gate.
    pub(crate) async fn entered(&self) {
        let entered = tokio::time::timeout(Duration::from_secs(20), self.shop.entered.acquire()).await;
        entered.expect("the handler is called").unwrap().forget();
    }
}

/// Sends a request.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answer { status, headers, body: response.bytes().await.unwrap() }
}
