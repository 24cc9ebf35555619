//! The handlers of the cases about external calls.

use std::marker::PhantomData;
use std::time::Duration;

use idem_core::{
    BoxError, CallError, Called, CalledBy, Delivery, External, Found, Handler, OutboundKey, Outbox, State,
};
use serde::{Deserialize, Serialize};

use idem_conformance::store::World;

use super::desk::Desk;
use super::orders::{Act, Order, end};

/// The life of a key.
pub(super) const KEY_LIFE: Duration = Duration::from_secs(24 * 3600);

/// When a call is asked about, at the earliest.
pub(super) const ASK_AFTER: Duration = Duration::from_secs(30);

/// A call to the payment provider, which knows keys if it is `KEYED`, and can be asked about a call if it `ASKS`.
pub(super) struct Pay<const KEYED: bool, const ASKS: bool>;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Charged {
    pub(super) number: String,
}

impl Charged {
    /// That with this number. It is large if the id of the order says so.
    fn of(order: &Order, number: String) -> Self {
        let number = if order.id.starts_with("large") { number.repeat(100_000) } else { number };
        Self { number }
    }
}

impl<const KEYED: bool, const ASKS: bool> External for Pay<KEYED, ASKS> {
    const NAME: &'static str = "pay";
    const KEY_LIFE: Option<Duration> = if KEYED { Some(KEY_LIFE) } else { None };
    const TIMEOUT: Duration = Duration::from_secs(3);
    const RECONCILES: bool = ASKS;
    const ASK_AFTER: Duration = ASK_AFTER;

    type Message = Order;
    type Params = (OutboundKey, State<Desk>);
    type Answer = Charged;

    async fn call(order: &Order, (key, State(desk)): Self::Params) -> Result<Charged, CallError> {
        let _handling = desk.handling();
        let reply = desk.provider.charge(KEYED.then_some(key.as_str()), &order.id).await?;
        match reply.status {
            200 => Ok(Charged::of(order, reply.body)),
            429 => Err(CallError::not_done(reply.body)),
            422 => Err(CallError::permanent(reply.body)),
            status => Err(format!("the status {status}: {}", reply.body).into()),
        }
    }

    async fn reconcile(order: &Order, (key, State(desk)): Self::Params) -> Result<Found<Charged>, BoxError> {
        desk.run(&format!("question {}", order.id));
        match order.id.rsplit_once(' ') {
            Some((_, "unknown")) => return Ok(Found::Unknown),
            Some((_, "panics")) => panic!("the question panics"),
            Some((_, "hangs")) => std::future::pending().await,
            Some((_, "away")) => return Err("the provider is away".into()),
            _ => {}
        }
        let ledger = desk.provider.ledger();
        let is_this = |charge: &&idem_test::provider::Charge| match KEYED {
            true => charge.key.as_deref() == Some(key.as_str()),
            false => charge.body == order.id,
        };
        let charge = ledger.iter().find(is_this);
        Ok(charge.map_or(Found::NotThere, |charge| Found::There(Charged::of(order, charge.number.to_string()))))
    }
}

/// The handler of orders that are paid for. Its effect is named by the id and the number of the charge.
pub(super) struct Pays<W, const KEYED: bool, const ASKS: bool>(PhantomData<fn() -> W>);

impl<W: World, const KEYED: bool, const ASKS: bool> Handler for Pays<W, KEYED, ASKS> {
    const NAME: &'static str = "pays";
    const EVENT: Option<&'static str> = Some("Order");

    type Params = (State<Desk>, Delivery, CalledBy<Pay<KEYED, ASKS>>);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(
        order: Order,
        (State(desk), delivery, called): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let Called(charged) = called.into_called();
        let run = desk.run(&order.id);
        let name = format!("{} {}", order.id, &charged.number[..charged.number.len().min(20)]);
        desk.write::<W>(&[&name], tx).await?;
        match order.does_in(run, &delivery) {
            Act::Ok => {}
            Act::Fail => return Err(format!("attempt {} has failed", delivery.attempt()).into()),
            Act::Panic => panic!("the handler panics"),
            Act::Wait => desk.wait().await?,
            ends => end::<W>(ends, &desk, &name, tx).await?,
        }
        Ok(())
    }
}

/// The handler of a version of the service that makes this call. Its effect is named by the id and the call.
pub(super) struct PaysBy<W, C>(PhantomData<fn() -> (W, C)>);

impl<W: World, C: External<Message = Order>> Handler for PaysBy<W, C> {
    const NAME: &'static str = "pays";
    const EVENT: Option<&'static str> = Some("Order");

    type Params = (State<Desk>, CalledBy<C>);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, (State(desk), _): Self::Params, tx: &mut W::Connection) -> Result<(), BoxError> {
        desk.write::<W>(&[&format!("{} by {}", order.id, C::NAME)], tx).await
    }
}

/// The handler of a version of the service that pays by itself.
pub(super) struct PaysItself<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for PaysItself<W> {
    const NAME: &'static str = "pays";
    const EVENT: Option<&'static str> = Some("Order");

    type Params = State<Desk>;

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, State(desk): State<Desk>, _: &mut W::Connection) -> Result<(), BoxError> {
        desk.run(&order.id);
        desk.provider.charge(None, &order.id).await?;
        Ok(())
    }
}

/// The handler of `Start` events, which starts the payment for an order.
pub(super) struct Starts<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Starts<W> {
    const NAME: &'static str = "starts";
    const EVENT: Option<&'static str> = Some("Start");

    type Params = Outbox;

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, outbox: Outbox, _: &mut W::Connection) -> Result<(), BoxError> {
        outbox.local::<Pays<W, true, true>>(&order)?;
        Ok(())
    }
}
