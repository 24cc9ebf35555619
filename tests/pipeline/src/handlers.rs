//! The handlers of the suite that take something other than one message, or take it in another way: batches, tombstones,
//! and messages that need no claim.

use std::marker::PhantomData;

use idem_core::{Batch, BoxError, Delivery, Handler, Key, KeyError, State, permanent};

use idem_conformance::store::World;

use super::desk::Desk;
use super::orders::{Act, Order, Orders, end};
use super::panicky::Extracted;

/// The batch handler of `Batched` events: one statement for all of them. It fails if one of them is to fail.
pub(super) struct BatchHandler<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for BatchHandler<W> {
    const NAME: &'static str = "batched";
    const EVENT: Option<&'static str> = Some("Batched");
    const NATURAL: bool = W::NATURAL;

    type Params = State<Desk>;

    idem_conformance::keyed_by_id!(Order, W::Connection, Batch<Order>);

    async fn handle(orders: Batch<Order>, State(desk): Self::Params, tx: &mut W::Connection) -> Result<(), BoxError> {
        let ids: Vec<&str> = orders.iter().map(|order| order.id.as_str()).collect();
        desk.run(&ids.join(" "));
        desk.write::<W>(&ids, tx).await?;
        for order in orders.iter() {
            match order.does(1) {
                Act::Permanent => return Err(permanent("never")),
                Act::Ok => {}
                ends => end::<W>(ends, &desk, &order.id, tx).await?,
            }
        }
        Ok(())
    }
}

/// A natural handler of the event type `Natural`. What it writes is not natural: each of its runs that are committed
/// has an effect, so that a test can count them.
pub(super) struct NaturalOrders<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for NaturalOrders<W> {
    const NAME: &'static str = "natural";
    const EVENT: Option<&'static str> = Some("Natural");
    const NATURAL: bool = true;

    type Params = (State<Desk>, Delivery, Extracted);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, params: Self::Params, tx: &mut W::Connection) -> Result<(), BoxError> {
        Orders::<W>::handle(order, params, tx).await
    }
}

/// A handler that takes tombstones: for the event type `Row`, keyed by message id. Its effect is that of the order, or
/// `gone` for a tombstone.
pub(super) struct Rows<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Rows<W> {
    const NAME: &'static str = "rows";
    const EVENT: Option<&'static str> = Some("Row");
    const TOMBSTONES: bool = true;

    type Message = Option<Order>;
    type Input = Option<Order>;
    type Params = (State<Desk>, Delivery);
    type Connection = W::Connection;

    fn key(_: &Option<Order>, delivery: &Delivery) -> Result<Key, KeyError> {
        Key::of(delivery.message_id().unwrap_or_default())
    }

    async fn handle(
        order: Option<Order>,
        (desk, delivery): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let fails = delivery.headers().get("fails").is_some();
        let order = order
            .unwrap_or_else(|| Order::new("gone", if fails { &[Act::Ok, Act::Fail, Act::Ok] } else { &[Act::Ok] }));
        Orders::<W>::handle(order, (desk, delivery, Extracted::default()), tx).await
    }
}
