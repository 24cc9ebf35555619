//! Messages that a request hands over to a handler, without a broker.

use std::marker::PhantomData;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use idem_conformance::store::{Setup, World};
use idem_core::{BoxError, Delivery, Handler, Key, KeyError, Worker};
use idem_http::{Outbox, Requests};
use idem_test::Broker;
use serde::{Deserialize, Serialize};

use super::service::{Served, rows};

on_each_database! {
    a_request_hands_a_message_over_if_it_is_committed
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    id: String,
}

/// Sends a receipt.
struct Sends<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Sends<W> {
    const NAME: &'static str = "sends";

    type Message = Receipt;
    type Input = Receipt;
    type Params = ();
    type Connection = W::Connection;

    fn key(receipt: &Receipt, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&receipt.id)
    }

    async fn handle(_: Receipt, (): (), _: &mut W::Connection) -> Result<(), BoxError> {
        Ok(())
    }
}

async fn hand_over<W: World>(outbox: Outbox, id: String) -> StatusCode {
    outbox.local::<Sends<W>>(&Receipt { id: id.clone() }).unwrap();
    if id == "refused" { StatusCode::CONFLICT } else { StatusCode::ACCEPTED }
}

/// Sends a request to the service in this process.
async fn send(app: &Router, id: &'static str) -> u16 {
    use tower_service::Service as _;

    let request =
        Request::post("/receipts").header("idempotency-key", id).body(axum::body::Body::from(Bytes::from(id)));
    app.clone().call(request.unwrap()).await.unwrap().status().as_u16()
}

async fn a_request_hands_a_message_over_if_it_is_committed<W: Served>(world: W) {
    let store = world.store(Setup::default()).await.unwrap();
    let worker = Worker::new("receipts", store.clone(), Broker::new().queue("receipts")).handler::<Sends<W>>();
    let requests = Requests::new("receipts-api", store.clone()).one_scope_for_everyone().local_to(&worker);
    let app = Router::new().route("/receipts", post(hand_over::<W>)).route_layer(requests.layer());
    for (id, status) in [("a", 202), ("a", 202), ("refused", 409), ("b", 202)] {
        assert_eq!(send(&app, id).await, status, "{id}");
    }
    assert_eq!(rows(&world, &world.own("inbox_messages")).await, 2);

    // Without a worker there is no handler that could take it.
    let requests = Requests::new("alone-api", store).one_scope_for_everyone();
    let app = Router::new().route("/receipts", post(hand_over::<W>)).route_layer(requests.layer());
    assert_eq!(send(&app, "a").await, 500);
    assert_eq!(rows(&world, &world.own("replies")).await, 2);
}
