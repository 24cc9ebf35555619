//! Handlers that stage messages, and a queue of their events.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use idem_core::store::{OutboxRead, OutboxRow, OutboxRows};
use idem_core::{Batch, BoxError, Delivery, Extract, Extraction, Handler, Outbox, Outgoing, Param, State, Worker};
use uuid::Uuid;

use idem_conformance::store::World;
use idem_test::Publication;
use idem_test::tapped_store::{Over, TappedStore};

use super::desk::Desk;
use super::faulty::{Do, Faulty};
use super::line::Line;
use super::orders::{Act, Order, Orders};
use super::panicky::Extracted;
use super::running::Running;
use super::settings::Settings;

/// How many further messages the handler stages for the order `many`.
pub(super) const MANY: usize = 10_000;

/// The handler of `Staging` events: it stages two messages, before and after it does what the order says.
pub(super) struct Stages<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Stages<W> {
    const NAME: &'static str = "stages";
    const EVENT: Option<&'static str> = Some("Staging");

    type Params = (State<Desk>, Delivery, Outbox);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(
        order: Order,
        (desk, delivery, outbox): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let id = order.id.clone();
        // As a task would that outlives this run.
        desk.0.outboxes.lock().unwrap().push(outbox.clone());
        outbox.publish("orders.paid", &format!("{id} 1"))?.key(&id).header("tenant", "acme");
        if id == "large" {
            outbox.send(Outgoing::new("orders.paid", vec![b' '; 100_000]))?;
        }
        let further = if id == "many" { MANY } else { 0 };
        for n in 0..further {
            outbox.publish("orders.paid", &n.to_string())?;
        }
        Orders::<W>::handle(order, (desk, delivery, Extracted::default()), tx).await?;
        let undeliverable = if id == "undeliverable" { "a\nb" } else { "place" };
        outbox.publish("orders.paid", &format!("{id} 2"))?.key(&id).header(undeliverable, "2");
        if id == "one id" {
            outbox.publish("orders.paid", "")?.id(Uuid::nil());
            outbox.publish("invoices", "")?.id(Uuid::nil());
        }
        Ok(())
    }
}

/// An extractor that stages a message if the key is that of an audited order, and fails if it has no audit.
struct Audited;

impl Param for Audited {
    const STAGES: bool = true;
}

impl<S> Extract<S> for Audited {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        let key = from.key.to_string();
        if key.contains("audited") {
            Outbox::extract(from)?.publish("audits", &key)?;
        }
        if key.contains("without an audit") { Err(idem_core::permanent("it has no audit")) } else { Ok(Self) }
    }
}

/// The batch handler of `StagingBatch` events. It fails if one of them is to fail.
struct StagesBatch<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for StagesBatch<W> {
    const NAME: &'static str = "stages_batch";
    const EVENT: Option<&'static str> = Some("StagingBatch");

    type Params = (State<Desk>, Outbox, Audited);

    idem_conformance::keyed_by_id!(Order, W::Connection, Batch<Order>);

    async fn handle(
        orders: Batch<Order>,
        (State(desk), outbox, _): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let ids: Vec<&str> = orders.iter().map(|order| order.id.as_str()).collect();
        desk.write::<W>(&ids, tx).await?;
        for order in orders.iter() {
            outbox.publish("orders.paid", &order.id)?;
            if order.does(1) == Act::Permanent {
                return Err(idem_core::permanent("never"));
            }
        }
        Ok(())
    }
}

/// An extractor that passes on an outbox and does not say so.
pub(super) struct Undeclared(Outbox);

impl Param for Undeclared {}

impl<S> Extract<S> for Undeclared {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        Outbox::extract(from).map(Self)
    }
}

/// The handler of `Staging` events that takes it.
pub(super) struct StagesUndeclared<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for StagesUndeclared<W> {
    const NAME: &'static str = "stages_undeclared";
    const EVENT: Option<&'static str> = Some("Staging");

    type Params = (Undeclared,);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, (outbox,): Self::Params, _: &mut W::Connection) -> Result<(), BoxError> {
        outbox.0.publish("orders.paid", &order.id)?;
        Ok(())
    }
}

/// A queue of such events.
pub(super) struct Staging<W: World>(pub(super) Line<W>);

impl<W: World> Staging<W> {
    pub(super) async fn new(world: W) -> Self {
        Self(Line::new(world).await)
    }

    pub(super) fn publish(&self, event: &str, order: Order) {
        self.0.publish_raw(Publication::from(order).event_type(event));
    }

    pub(super) fn start(&self, settings: Settings) -> Running {
        let worker = Worker::new(settings.consumer, self.0.store.clone(), self.0.queue.clone());
        let worker = worker.state(self.0.desk.clone()).handler::<Stages<W>>().handler::<StagesBatch<W>>();
        self.0.run_until_stopped(worker, settings)
    }

    /// Starts a worker whose store fails on demand.
    pub(super) fn start_over(
        &self,
        hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static,
        settings: Settings,
    ) -> Running {
        let store = TappedStore::new(self.0.store.clone(), Faulty::new(hook));
        let worker = Worker::new(settings.consumer, store, self.0.queue.clone()).state(self.0.desk.clone());
        self.0.run_until_stopped(worker.handler::<Over<Stages<W>, W::Store, Faulty>>(), settings)
    }

    /// Runs a worker until there are so many outcomes.
    pub(super) async fn run(&self, outcomes: usize) -> Vec<String> {
        let worker = self.start(Settings::default());
        self.0.outcomes(outcomes).await;
        worker.stop_once_idle(&self.0.queue).await;
        self.0.outcomes(outcomes).await
    }

    /// What is staged, in its order.
    pub(super) async fn rows(&self) -> Vec<OutboxRow> {
        let outbox = self.0.store.register_outbox("billing").await.unwrap();
        self.0.store.read_outbox(outbox, &OutboxRead::ALL).await.unwrap().rows
    }

    /// The texts of what is staged.
    pub(super) async fn staged(&self) -> Vec<String> {
        let text = |row: &OutboxRow| row.message.message().decode().unwrap_or_else(|_| "large".to_owned());
        self.rows().await.iter().map(text).collect()
    }

    pub(super) async fn ids(&self) -> BTreeMap<String, Uuid> {
        let text = |row: &OutboxRow| (row.message.message().decode().unwrap_or_default(), row.message.id());
        self.rows().await.iter().map(text).collect()
    }
}
