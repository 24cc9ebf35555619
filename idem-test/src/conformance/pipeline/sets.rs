//! A handler that takes all new messages at once.

use std::marker::PhantomData;

use idem_core::{Batch, BoxError, Delivery, Handler, Key, KeyError, State, permanent};

use super::orders::{Act, Desk};
use super::{Order, World};

/// The handler of the events of the type `Set`: one statement for all of them. It fails where one of them is to fail.
pub(super) struct Sets<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Sets<W> {
    const NAME: &'static str = "sets";
    const EVENT: Option<&'static str> = Some("Set");

    type Message = Order;
    type Input = Batch<Order>;
    type Params = State<Desk>;
    type Connection = W::Connection;

    fn key(order: &Order, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&order.id)
    }

    async fn handle(orders: Batch<Order>, State(desk): Self::Params, tx: &mut W::Connection) -> Result<(), BoxError> {
        let ids: Vec<&str> = orders.iter().map(|order| order.id.as_str()).collect();
        desk.run(&ids.join(" "));
        desk.write::<W>(&ids, tx).await?;
        for order in orders.iter() {
            match order.does(1) {
                Act::Permanent => return Err(permanent("never")),
                Act::RollbackWrite => {
                    drop(W::execute(tx, "ROLLBACK").await);
                    drop(desk.write::<W>(&[&order.id], tx).await);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
