//! An event of several handlers, of which one makes an external call, or each.

use std::marker::PhantomData;

use idem_core::{BoxError, CalledBy, Handler, State};

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::provider::Fault;

use super::call_keys::{POSITION, order_at};
use super::desk::Desk;
use super::orders::Order;
use super::paying::{Pay, Paying, Pays};
use super::settings::Settings;

/// Takes the orders that are paid for as well.
struct Ships<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Ships<W> {
    const NAME: &'static str = "ships";
    const EVENT: Option<&'static str> = Some("Order");

    type Params = State<Desk>;

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, State(desk): State<Desk>, tx: &mut W::Connection) -> Result<(), BoxError> {
        desk.write::<W>(&[&format!("shipped {}", order.id)], tx).await
    }
}

/// Pays for the same orders once more.
struct PaysTax<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for PaysTax<W> {
    const NAME: &'static str = "pays tax";
    const EVENT: Option<&'static str> = Some("Order");

    type Params = (State<Desk>, CalledBy<Pay<true, true>>);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, (State(desk), _): Self::Params, tx: &mut W::Connection) -> Result<(), BoxError> {
        desk.write::<W>(&[&format!("tax of {}", order.id)], tx).await
    }
}

/// Each has its own row. That of the call begins in its call phase, and the other one does not wait for it.
pub async fn a_message_of_several_handlers_calls_for_one_of_them<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    for _ in 0..2 {
        paying.publish("a", [Fault::Wait]);
    }
    let worker = paying.0.worker().handler::<Pays<W, true, true>>().handler::<Ships<W>>().fan_out();
    let worker = paying.0.run_until_stopped(worker, Settings::default());
    until(async || paying.0.effects("shipped a").await != 0).await;
    assert_eq!(paying.counts("a").await.2, 0, "it has shipped before it is paid");
    paying.provider().release();
    paying.completed("a").await;
    worker.stop_once_idle(&paying.0.queue).await;
    assert_eq!((paying.counts("a").await, paying.0.effects("shipped a").await), ((1, 1, 1), 1));
    assert!(paying.0.scheduled().await.is_empty() && paying.0.dead().await.is_empty());
}

/// Under one key, the provider would take the second call for a repeat of the first.
pub async fn each_handler_of_a_message_calls_under_its_own_key<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.0.publish(order_at(POSITION));
    let worker = paying.0.worker().handler::<Pays<W, true, true>>().handler::<PaysTax<W>>().fan_out();
    let worker = paying.0.run_until_stopped(worker, Settings::default());
    paying.completed("a").await;
    until(async || paying.0.effects("tax of a").await != 0).await;
    worker.stop().await;
    let keys = paying.provider().requests("a");
    assert_eq!((keys.len(), paying.provider().charged("a")), (2, 2), "{keys:?}");
    assert_ne!(keys[0], keys[1]);
}
