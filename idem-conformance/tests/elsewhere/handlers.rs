//! The handlers that are tried.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use idem_conformance::store::World;
use idem_core::{BoxError, CallError, Called, CalledBy, External, Found, Handler, OutboundKey, Outbox, State};
use idem_test::provider::Provider;
use serde::{Deserialize, Serialize};

use crate::Tested;

pub(super) type Connection = <Tested as World>::Connection;

#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) id: u32,
}

/// The state of the handlers.
#[derive(Clone)]
pub(super) struct Shop {
    pub(super) bank: Provider,
    /// The names of its tables.
    pub(super) payments: String,
    pub(super) receipts: String,
    /// An effect outside of the database.
    outside: Arc<AtomicI64>,
}

impl Shop {
    pub(super) fn new(payments: String, receipts: String) -> Self {
        Self { bank: Provider::new(), payments, receipts, outside: Arc::default() }
    }

    pub(super) fn outside(&self) -> i64 {
        self.outside.load(SeqCst)
    }

    async fn pay(&self, order: &Order, charge: &str, tx: &mut Connection) -> Result<(), BoxError> {
        let (table, id) = (&self.payments, order.id);
        Tested::execute(tx, &format!("INSERT INTO {table} (order_id, charge) VALUES ({id}, {charge})")).await
    }

    async fn send_receipt(&self, order: &Order, tx: &mut Connection) -> Result<(), BoxError> {
        let (table, id) = (&self.receipts, order.id);
        Tested::execute(tx, &format!("INSERT INTO {table} (order_id) VALUES ({id})")).await
    }
}

/// Charges an order at the bank. Returns the number of the charge.
async fn charge(bank: &Provider, key: Option<&str>, order: &Order) -> Result<String, CallError> {
    let reply = bank.charge(key, &order.id.to_string()).await?;
    match reply.status {
        200 => Ok(reply.body),
        429 => Err(CallError::not_done(reply.body)),
        status => Err(format!("the status {status}: {}", reply.body).into()),
    }
}

/// A call to a bank that knows keys. Unless it `SENDS_KEY`, it keeps the key to itself.
pub(super) struct Charge<const SENDS_KEY: bool>;

impl<const SENDS_KEY: bool> External for Charge<SENDS_KEY> {
    const NAME: &'static str = "charge";
    const KEY_LIFE: Option<Duration> = Some(Duration::from_secs(24 * 3600));
    /// Its lease is longer than a trial waits for a process.
    const TIMEOUT: Duration = Duration::from_secs(60);

    type Message = Order;
    type Params = (OutboundKey, State<Shop>);
    type Answer = String;

    async fn call(order: &Order, (key, State(shop)): Self::Params) -> Result<String, CallError> {
        charge(&shop.bank, SENDS_KEY.then_some(key.as_str()), order).await
    }
}

/// A call to a bank that knows no keys and can be asked. Unless it `SEES`, the question finds nothing.
pub(super) struct Transfer<const SEES: bool>;

impl<const SEES: bool> External for Transfer<SEES> {
    const NAME: &'static str = "transfer";
    const KEY_LIFE: Option<Duration> = None;
    const RECONCILES: bool = true;

    type Message = Order;
    type Params = State<Shop>;
    type Answer = String;

    async fn call(order: &Order, State(shop): State<Shop>) -> Result<String, CallError> {
        // For longer than the poll interval of a trial, and than a lease in it.
        tokio::time::sleep(Duration::from_millis(30)).await;
        charge(&shop.bank, None, order).await
    }

    async fn reconcile(order: &Order, State(shop): State<Shop>) -> Result<Found<String>, BoxError> {
        let body = order.id.to_string();
        let charge = shop.bank.ledger().into_iter().find(|charge| SEES && charge.body == body);
        Ok(charge.map_or(Found::NotThere, |charge| Found::There(charge.number.to_string())))
    }
}

/// Writes down what the call `C` has charged.
pub(super) struct Pays<C>(PhantomData<fn() -> C>);

impl<C: External<Message = Order, Answer = String>> Handler for Pays<C> {
    const NAME: &'static str = "pays";

    type Params = (State<Shop>, CalledBy<C>);

    idem_conformance::keyed_by_id!(Order, Connection);

    async fn handle(order: Order, (State(shop), called): Self::Params, tx: &mut Connection) -> Result<(), BoxError> {
        let Called(number) = called.into_called();
        shop.pay(&order, &number, tx).await
    }
}

/// Charges by itself, in its transaction.
pub(super) struct PaysItself;

impl Handler for PaysItself {
    const NAME: &'static str = "pays";

    type Params = State<Shop>;

    idem_conformance::keyed_by_id!(Order, Connection);

    async fn handle(order: Order, State(shop): State<Shop>, tx: &mut Connection) -> Result<(), BoxError> {
        let reply = shop.bank.charge(None, &order.id.to_string()).await?;
        shop.pay(&order, &reply.body, tx).await
    }
}

/// Sends a receipt, and hands the order over to the handler `H`.
pub(super) struct HandsOver<H>(PhantomData<fn() -> H>);

impl<H: Handler<Message = Order>> Handler for HandsOver<H> {
    const NAME: &'static str = "hands_over";

    type Params = (State<Shop>, Outbox);

    idem_conformance::keyed_by_id!(Order, Connection);

    async fn handle(order: Order, (State(shop), outbox): Self::Params, tx: &mut Connection) -> Result<(), BoxError> {
        shop.send_receipt(&order, tx).await?;
        outbox.local::<H>(&order)?;
        Ok(())
    }
}

/// Writes a payment, or, with `OUTSIDE`, has an effect outside of its transaction.
pub(super) struct Books<const OUTSIDE: bool>;

impl<const OUTSIDE: bool> Handler for Books<OUTSIDE> {
    const NAME: &'static str = "books";

    type Params = State<Shop>;

    idem_conformance::keyed_by_id!(Order, Connection);

    async fn handle(order: Order, State(shop): State<Shop>, tx: &mut Connection) -> Result<(), BoxError> {
        if OUTSIDE {
            shop.outside.fetch_add(1, SeqCst);
        }
        // It always waits here, while the answer of a database may be there at once.
        tokio::task::yield_now().await;
        shop.pay(&order, "0", tx).await
    }
}

/// Sends a receipt, and publishes the order.
pub(super) struct Publishes;

impl Handler for Publishes {
    const NAME: &'static str = "publishes";

    type Params = (State<Shop>, Outbox);

    idem_conformance::keyed_by_id!(Order, Connection);

    async fn handle(order: Order, (State(shop), outbox): Self::Params, tx: &mut Connection) -> Result<(), BoxError> {
        shop.send_receipt(&order, tx).await?;
        outbox.publish("orders", &order)?;
        Ok(())
    }
}
