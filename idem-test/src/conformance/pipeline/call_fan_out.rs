//! An event of which one of several handlers makes an external call.

use std::marker::PhantomData;

use idem_core::{BoxError, Delivery, Handler, Key, KeyError, State, Worker};

use crate::conformance::soon;
use crate::conformance::store::World;
use crate::provider::Fault;

use super::desk::Desk;
use super::orders::Order;
use super::paying::Paying;
use super::payments::Pays;
use super::settings::Settings;

/// Takes the orders that are paid for as well.
struct Ships<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Ships<W> {
    const NAME: &'static str = "ships";
    const EVENT: Option<&'static str> = Some("Order");

    type Message = Order;
    type Input = Order;
    type Params = State<Desk>;
    type Connection = W::Connection;

    fn key(order: &Order, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&order.id)
    }

    async fn handle(order: Order, State(desk): State<Desk>, tx: &mut W::Connection) -> Result<(), BoxError> {
        desk.write::<W>(&[&format!("shipped {}", order.id)], tx).await
    }
}

/// Each has its own row. That of the call begins in its call phase, and the other one does not wait for it.
pub async fn a_message_of_several_handlers_calls_for_one_of_them<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    for _ in 0..2 {
        paying.publish("a", [Fault::Wait]);
    }
    let worker = Worker::new("billing", paying.0.store.clone(), paying.0.queue.clone()).state(paying.0.desk.clone());
    let worker = worker.handler::<Pays<W, true, true>>().handler::<Ships<W>>().fan_out();
    let worker = paying.0.run_until_stopped(worker, Settings::default());
    soon(async {
        while paying.0.effects("shipped a").await == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(paying.counts("a").await.2, 0, "it has shipped before it is paid");
    paying.provider().release();
    paying.completed("a").await;
    soon(paying.0.queue.idle()).await;
    worker.stop().await;
    assert_eq!((paying.counts("a").await, paying.0.effects("shipped a").await), ((1, 1, 1), 1));
    assert!(paying.0.scheduled().await.is_empty() && paying.0.dead().await.is_empty());
}
