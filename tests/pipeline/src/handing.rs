//! The handlers and the workers of the cases about local messages.

use std::marker::PhantomData;

use idem_core::{Batch, BoxError, Delivery, Handler, HandlerOptions, Key, KeyError, Outbox, State, Worker};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use idem_conformance::store::World;
use idem_test::Publication;

use super::desk::Desk;
use super::line::{Line, sorted};
use super::orders::{Act, Order, Orders};
use super::panicky::Extracted;
use super::running::Running;
use super::settings::Settings;

/// A message that is handed over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Receipt {
    id: String,
    note: String,
}

impl Receipt {
    /// That of an order with this id. It is large if the id says so.
    pub(super) fn of(id: &str) -> Self {
        let note = if id.starts_with("large") { "x".repeat(100_000) } else { String::new() };
        Self { id: id.to_owned(), note }
    }
}

/// The handler of `Handing` events: it hands over a receipt before it does what the order says, or others that the
/// order's id asks for, or publishes one.
pub(super) struct Hands<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Hands<W> {
    const NAME: &'static str = "hands";
    const EVENT: Option<&'static str> = Some("Handing");

    type Params = (State<Desk>, Delivery, Outbox);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(
        order: Order,
        (desk, delivery, outbox): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        match order.id.rsplit_once(' ') {
            _ if order.id == "undecodable" => {
                outbox.send_local::<Receives<W>>("no JSON")?;
            }
            _ if order.id == "keyless" => {
                outbox.local::<Receives<W>>(&Receipt::of(""))?;
            }
            Some((id, "twice")) => {
                for note in ["first", "second"] {
                    let receipt = Receipt { id: id.to_owned(), note: note.to_owned() };
                    outbox.local::<Receives<W>>(&receipt)?;
                }
            }
            Some((_, "shared")) => {
                outbox.local::<Receives<W>>(&Receipt::of("shared"))?;
            }
            Some((_, "published")) => {
                outbox.publish("receipts", &Receipt::of(&order.id))?;
            }
            Some((_, "id")) => {
                outbox.local::<Receives<W>>(&Receipt::of(&order.id))?;
                outbox.local::<ById<W>>(&"derived id".to_owned())?.header("tenant", "acme");
                outbox.local::<ById<W>>(&"id 7".to_owned())?.id(Uuid::from_u128(7));
            }
            _ => {
                outbox.local::<Receives<W>>(&Receipt::of(&order.id))?;
            }
        }
        Orders::<W>::handle(order, (desk, delivery, Extracted::default()), tx).await
    }
}

/// The batch handler of `HandingBatch` events. It fails if one of them is to fail.
pub(super) struct HandsBatch<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for HandsBatch<W> {
    const NAME: &'static str = "hands_batch";
    const EVENT: Option<&'static str> = Some("HandingBatch");

    type Params = (State<Desk>, Outbox);

    idem_conformance::keyed_by_id!(Order, W::Connection, Batch<Order>);

    async fn handle(
        orders: Batch<Order>,
        (State(desk), outbox): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let ids: Vec<&str> = orders.iter().map(|order| order.id.as_str()).collect();
        desk.write::<W>(&ids, tx).await?;
        for order in orders.iter() {
            outbox.local::<Receives<W>>(&Receipt::of(&order.id))?;
            if order.does(1) == Act::Permanent {
                return Err(idem_core::permanent("never"));
            }
        }
        Ok(())
    }
}

/// The handler of receipts. Its effect is named by the id, with the note if that is short.
pub(super) struct Receives<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Receives<W> {
    const NAME: &'static str = "receives";
    const EVENT: Option<&'static str> = Some("Receipt");

    type Params = (State<Desk>, Delivery);

    idem_conformance::keyed_by_id!(Receipt, W::Connection);

    async fn handle(
        receipt: Receipt,
        (State(desk), delivery): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        assert_eq!((delivery.event_type(), delivery.attempt()), (Some("Receipt"), 1));
        let what = if receipt.note.len() > 100 || receipt.note.is_empty() { "receipt" } else { &receipt.note };
        desk.write::<W>(&[&format!("{what} {}", receipt.id)], tx).await
    }
}

/// A handler whose key is the message id. For a message with a tenant, it needs a position as well, which a local
/// message does not have.
pub(super) struct ById<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for ById<W> {
    const NAME: &'static str = "by_id";
    // That of another handler, which is possible because it takes no delivery.
    const EVENT: Option<&'static str> = Some("Handing");

    type Message = String;
    type Input = String;
    type Params = (State<Desk>, Delivery);
    type Connection = W::Connection;

    fn key(_: &String, delivery: &Delivery) -> Result<Key, KeyError> {
        if delivery.headers().get_str("tenant").is_some() {
            return Err(KeyError::Missing { what: "position".to_owned() });
        }
        Key::of(delivery.message_id().unwrap_or_default())
    }

    async fn handle(
        message: String,
        (State(desk), delivery): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let id: Uuid = delivery.message_id().unwrap_or_default().parse()?;
        let is_given = id == Uuid::from_u128(7);
        assert_eq!((is_given, id.get_version_num() == 8), (message == "id 7", message != "id 7"));
        desk.write::<W>(&[&format!("by {message}")], tx).await
    }
}

/// A queue of events whose handlers hand over.
pub(super) struct Handing<W: World>(pub(super) Line<W>);

impl<W: World> Handing<W> {
    pub(super) async fn new(world: W) -> Self {
        Self(Line::new(world).await)
    }

    pub(super) fn publish(&self, event: &str, order: Order) {
        self.0.publish_raw(Publication::from(order).event_type(event));
    }

    pub(super) fn start(&self, settings: Settings) -> Running {
        let worker = Worker::new(settings.consumer, self.0.store.clone(), self.0.queue.clone());
        let worker = worker.state(self.0.desk.clone()).handler::<Hands<W>>().handler::<HandsBatch<W>>();
        let worker = worker.handler::<Receives<W>>().handler_options::<ById<W>>(HandlerOptions::new().local_only());
        self.0.run_until_stopped(worker, settings)
    }

    /// Runs a worker until there are so many outcomes, and returns them sorted.
    pub(super) async fn run(&self, outcomes: usize) -> Vec<String> {
        self.run_with(Settings::default(), outcomes).await
    }

    pub(super) async fn run_with(&self, settings: Settings, outcomes: usize) -> Vec<String> {
        let worker = self.start(settings);
        self.0.outcomes(outcomes).await;
        worker.stop_once_idle(&self.0.queue).await;
        sorted(self.0.outcomes(outcomes).await)
    }

    /// How many claims there are of messages that were handed over.
    pub(super) async fn claims(&self) -> i64 {
        let (claims, handlers) = (self.0.world.own("processed_messages"), self.0.world.own("handlers"));
        let of = format!("SELECT id FROM {handlers} WHERE name IN ('receives', 'by_id')");
        self.0.world.number(&format!("SELECT count(*) FROM {claims} WHERE handler_id IN ({of})")).await
    }
}
