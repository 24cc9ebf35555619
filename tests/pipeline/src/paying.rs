//! The handlers and the workers of the cases about external calls.

use std::marker::PhantomData;
use std::time::Duration;

use idem_core::store::Row;
use idem_core::{
    BoxError, CallError, Called, CalledBy, Delivery, External, Found, Handler, OutboundKey, Outbox, RetryPolicy, State,
    Worker,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::provider::{Fault, Provider};
use idem_test::tapped_store::{Over, TappedStore};

use super::desk::Desk;
use super::faulty::{Do, Faulty};
use super::line::Line;
use super::orders::{Act, Order, end};
use super::running::Running;
use super::settings::Settings;

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

/// A queue of orders that are paid for.
pub(super) struct Paying<W: World, const KEYED: bool = true, const ASKS: bool = true>(pub(super) Line<W>);

/// Longer than the lease of a call and shorter than the life of a key.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

impl<W: World, const KEYED: bool, const ASKS: bool> Paying<W, KEYED, ASKS> {
    pub(super) async fn new(world: W) -> Self {
        Self(Line::new(world).await)
    }

    pub(super) fn provider(&self) -> &Provider {
        &self.0.desk.provider
    }

    /// Publishes an order whose requests fail in this way.
    pub(super) fn publish(&self, id: &str, faults: impl IntoIterator<Item = Fault>) {
        self.publish_order(Order::ok(id), faults);
    }

    pub(super) fn publish_order(&self, order: Order, faults: impl IntoIterator<Item = Fault>) {
        self.provider().fail(&order.id, faults);
        self.0.publish(order);
    }

    pub(super) fn start(&self) -> Running {
        self.start_with(Settings::default())
    }

    pub(super) fn start_with(&self, settings: Settings) -> Running {
        let worker = Worker::new(settings.consumer, self.0.store.clone(), self.0.queue.clone());
        let worker = worker.state(self.0.desk.clone()).handler::<Pays<W, KEYED, ASKS>>();
        self.0.run_until_stopped(worker, settings)
    }

    /// Starts a worker whose store hangs in this method until the returned worker is ended.
    pub(super) fn start_that_hangs_in(&self, method: &'static str) -> (Running, watch::Receiver<bool>) {
        let (reached, seen) = watch::channel(false);
        let hook = move |called: &'static str, _: &[u8]| {
            if called != method {
                return Do::Work;
            }
            reached.send_replace(true);
            Do::Hang
        };
        (self.start_over(hook), seen)
    }

    /// Starts a worker whose store waits in this method until the test opens the gate.
    pub(super) fn start_that_waits_in(
        &self,
        method: &'static str,
        settings: Settings,
    ) -> (Running, watch::Sender<bool>) {
        let (open, gate) = watch::channel(false);
        let hook = move |called: &'static str, _: &[u8]| match called == method {
            true => Do::Wait(gate.clone()),
            false => Do::Work,
        };
        (self.start_over_with(hook, settings), open)
    }

    /// Starts a worker whose store fails on demand.
    pub(super) fn start_over(&self, hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static) -> Running {
        self.start_over_with(hook, Settings::default())
    }

    pub(super) fn start_over_with(
        &self,
        hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static,
        settings: Settings,
    ) -> Running {
        let store = TappedStore::new(self.0.store.clone(), Faulty::new(hook));
        let worker = Worker::new("billing", store, self.0.queue.clone()).state(self.0.desk.clone());
        let worker = worker.handler::<Over<Pays<W, KEYED, ASKS>, W::Store, Faulty>>();
        self.0.run_until_stopped(worker, settings)
    }

    /// Ends a worker in this method as a crash does.
    pub(super) async fn crash_in(&self, method: &'static str) {
        let (worker, mut seen) = self.start_that_hangs_in(method);
        soon(seen.wait_for(|seen| *seen)).await.unwrap();
        drop(seen);
        worker.crash().await;
    }

    /// Lets time pass for the rows: leases end, and keys get older.
    pub(super) async fn time_passes(&self, by: Duration) {
        let inbox = self.0.world.own("inbox_messages");
        let (due, called) = (W::due_earlier(by), W::earlier("called_at", by));
        self.0.world.run(&format!("UPDATE {inbox} SET {due}, called_at = {called}")).await;
    }

    /// Waits for these outcomes, which are all that there were. Storing a message is none where every message is stored.
    pub(super) async fn sees(&self, expected: &[&str]) {
        let inbox = self.0.world.inbox();
        let expected: Vec<&str> = expected.iter().copied().filter(|it| !inbox || *it != "scheduled 0").collect();
        assert_eq!(self.0.outcomes(expected.len()).await, expected);
    }

    /// Runs a worker until the only call has failed, and lets time pass until it may be repeated or asked about.
    pub(super) async fn fails_once(&self) {
        let worker = self.start();
        self.row(|row| row.attempts == 1).await;
        worker.stop().await;
        self.time_passes(MINUTE).await;
    }

    /// Runs a worker until the order was completed.
    pub(super) async fn completes(&self, id: &str) {
        let worker = self.start();
        self.completed(id).await;
        worker.stop().await;
    }

    /// Waits until the order was completed.
    pub(super) async fn completed(&self, id: &str) {
        until(async || self.counts(id).await.2 != 0).await;
    }

    /// Waits until a row is in this state.
    pub(super) async fn row(&self, is_it: impl Fn(&Row) -> bool) -> Row {
        soon(async {
            loop {
                if let Some(row) = self.0.scheduled().await.into_iter().find(|row| is_it(row)) {
                    return row;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// Waits for the only dead letter.
    pub(super) async fn dead(&self) -> Row {
        until(async || !self.0.dead().await.is_empty()).await;
        self.0.one_dead().await
    }

    /// How often this order was charged, requested, and completed.
    pub(super) async fn counts(&self, id: &str) -> (usize, usize, i64) {
        let (provider, effects) = (self.provider(), self.0.world.name("effects"));
        let completed = format!("SELECT count(*) FROM {effects} WHERE name LIKE '{id} %'");
        (provider.charged(id), provider.requests(id).len(), self.0.world.number(&completed).await)
    }

    /// Whether all requests for this order had one key.
    pub(super) fn has_one_key(&self, id: &str) -> bool {
        let requests = self.provider().requests(id);
        requests.iter().all(|key| key.is_some() && *key == requests[0])
    }
}

/// Settings by which a message is dead after so many attempts.
pub(super) fn attempts(number: u32) -> Settings {
    let retry = RetryPolicy::new().min_delay(Duration::from_millis(1)).max_delay(Duration::from_millis(5));
    Settings { retry: retry.max_attempts(number), ..Settings::default() }
}

/// An order whose handler does this in its runs.
pub(super) fn order(id: &str, acts: &[Act]) -> Order {
    Order::new(id, acts)
}
