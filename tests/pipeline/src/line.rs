//! A queue, its workers, and the observed outcomes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_core::operator::{Filter, Operator, Page};
use idem_core::store::Row;
use idem_core::{
    Codec, IsolationLock, Json, NoHandlers, Observed, Outcome, Source, Store, SubscribeOptions, WithHandlers, Worker,
};
use tokio::sync::{oneshot, watch};

use idem_conformance::soon;
use idem_conformance::store::{Setup, World};
use idem_test::tapped_store::{Over, TappedStore};
use idem_test::{Broker, Publication, Queue};

use super::desk::Desk;
use super::faulty::{Do, Faulty};
use super::handlers::{BatchHandler, NaturalOrders, Rows};
use super::orders::{Order, Orders};
use super::panicky::panics;
use super::running::Running;
use super::settings::Settings;

const QUEUE: &str = "orders";

/// A queue, a database, the workers between them, and the observed outcomes.
pub(super) struct Line<W: World> {
    pub(super) world: Arc<W>,
    pub(super) store: W::Store,
    pub(super) broker: Broker,
    pub(super) queue: Queue,
    pub(super) desk: Desk,
    /// Each outcome, with the handler and the key.
    observed: Arc<Mutex<Vec<(Outcome, String)>>>,
    changed: watch::Sender<()>,
}

impl<W: World> Line<W> {
    pub(super) async fn new(world: W) -> Self {
        Self::with(world, Setup::default()).await
    }

    /// The same where a case can run: `None` ends it.
    pub(super) async fn new_if(can_run: bool, world: W) -> Option<Self> {
        if can_run { Some(Self::new(world).await) } else { None }
    }

    pub(super) async fn with(world: W, setup: Setup) -> Self {
        let store = world.store(setup).await.unwrap();
        let effects = world.name("effects");
        world.run(&format!("CREATE TABLE {effects} (name VARCHAR(300) NOT NULL)")).await;
        let broker = Broker::new();
        let queue = broker.queue(QUEUE);
        let (observed, changed) = (Arc::default(), watch::Sender::new(()));
        Self { world: Arc::new(world), store, broker, queue, desk: Desk::new(effects), observed, changed }
    }

    // ===== the producer =====

    /// Publishes an event of the type `Order`.
    pub(super) fn publish(&self, message: impl Into<Publication>) {
        self.broker.publish(QUEUE, message.into().event_type("Order"));
    }

    /// Publishes events whose ids are these numbers.
    pub(super) fn publish_numbers(&self, numbers: impl IntoIterator<Item: ToString>) {
        numbers.into_iter().for_each(|number| self.publish(Order::ok(&number.to_string())));
    }

    /// Publishes an event for the batch handler.
    pub(super) fn publish_batched(&self, message: impl Into<Publication>) {
        self.broker.publish(QUEUE, message.into().event_type("Batched"));
    }

    /// Publishes an event for the natural handler.
    pub(super) fn publish_natural(&self, message: impl Into<Publication>) {
        self.broker.publish(QUEUE, message.into().event_type("Natural"));
    }

    /// Publishes a message as it is.
    pub(super) fn publish_raw(&self, message: Publication) {
        self.broker.publish(QUEUE, message);
    }

    /// Publishes an event that the broker then marks as redelivered: a consumer has died on it.
    pub(super) async fn publish_redelivered(&self, message: impl Into<Publication>) {
        self.publish_raw_redelivered(message.into().event_type("Order")).await;
    }

    /// Like [`publish_redelivered`](Self::publish_redelivered), for a message as it is.
    pub(super) async fn publish_raw_redelivered(&self, message: Publication) {
        let mut queue = self.queue.clone();
        queue.subscribe(SubscribeOptions::new("billing", 100)).await.unwrap();
        self.publish_raw(message);
        soon(queue.next()).await.unwrap();
        queue.close().await;
    }

    // ===== the database =====

    /// Makes the database reject `what` on one of idem's tables: for this key, or for all rows.
    pub(super) async fn refuse(&self, what: &str, table: &str, key: Option<&str>) {
        self.world.run(&self.world.refuse(what, table, key)).await;
    }

    /// Undoes [`refuse`](Self::refuse).
    pub(super) async fn allow(&self, table: &str) {
        self.world.run(&self.world.allow(table)).await;
    }

    // ===== workers =====

    /// A worker of this queue without handlers.
    pub(super) fn worker(&self) -> Worker<W::Store, Queue, Desk, Json, NoHandlers> {
        Worker::new("billing", self.store.clone(), self.queue.clone()).state(self.desk.clone())
    }

    pub(super) fn start(&self) -> Running {
        self.start_with(Settings::default())
    }

    pub(super) fn start_with(&self, settings: Settings) -> Running {
        self.start_at(self.queue.clone(), settings)
    }

    /// Starts a worker that acts as a separate process, over any source.
    pub(super) fn start_at(&self, source: impl Source, settings: Settings) -> Running {
        let worker = Worker::new(settings.consumer, self.store.clone(), source).state(self.desk.clone());
        let worker = worker.handler::<Orders<W>>().handler::<Rows<W>>().handler::<BatchHandler<W>>();
        let worker = worker.handler::<NaturalOrders<W>>();
        let worker = if settings.both { worker.handler::<Orders<W, true>>() } else { worker };
        self.run_until_stopped(worker, settings)
    }

    /// Starts a worker whose store fails on demand.
    pub(super) fn start_over(
        &self,
        hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static,
        settings: Settings,
    ) -> Running {
        self.start_over_at(self.queue.clone(), hook, settings)
    }

    /// Starts a worker whose store fails on demand, over any source.
    pub(super) fn start_over_at(
        &self,
        source: impl Source,
        hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static,
        settings: Settings,
    ) -> Running {
        let store = TappedStore::new(self.store.clone(), Faulty::new(hook));
        let worker = Worker::new(settings.consumer, store, source).state(self.desk.clone());
        self.run_until_stopped(worker.handler::<Over<Orders<W>, W::Store, Faulty>>(), settings)
    }

    /// Starts a worker with this codec.
    pub(super) fn start_with_codec(&self, codec: impl Codec<Order>, settings: Settings) -> Running {
        let worker = Worker::new(settings.consumer, self.store.clone(), self.queue.clone()).state(self.desk.clone());
        let worker = worker.codec(codec).handler::<Orders<W>>();
        let worker = if settings.both { worker.handler::<Orders<W, true>>() } else { worker };
        self.run_until_stopped(worker, settings)
    }

    pub(super) fn run_until_stopped<S: Store, Src: Source, A: Send + Sync + 'static, C: Send + Sync + 'static>(
        &self,
        worker: Worker<S, Src, A, C, WithHandlers>,
        settings: Settings,
    ) -> Running {
        let (observed, changed, inbox) = (self.observed.clone(), self.changed.clone(), self.world.inbox());
        let observe = move |Observed { delivery, handler, key, outcome, .. }: Observed<'_>| {
            // Storing a message is not an outcome where every message is stored.
            if !inbox || word(outcome) != "scheduled 0" {
                let key = key.map_or("no key".to_owned(), ToString::to_string);
                let of = format!("{} {key}", handler.unwrap_or("no handler"));
                observed.lock().unwrap().push((outcome.clone(), of));
            }
            changed.send_replace(());
            panics(delivery, "observer");
        };
        let worker = match settings.event_type {
            Some(header) => worker.event_type(header),
            None => worker,
        };
        let worker = if inbox { worker.inbox() } else { worker };
        let single = !settings.ahead && self.world.batch() == 1;
        let worker = if single { worker.prefetch(settings.concurrency) } else { worker };
        let worker = worker
            .batch(self.world.batch())
            .linger(settings.linger)
            .concurrency(settings.concurrency)
            .inbox_concurrency(settings.inbox_concurrency)
            .call_concurrency(settings.call_concurrency)
            .handler_timeout(settings.handler_timeout)
            .prepare_timeout(settings.prepare_timeout)
            .retry(settings.retry)
            .max_payload(settings.max_payload)
            .lease_duration(Duration::from_secs(5))
            .poll_interval(settings.poll)
            .shutdown_timeout(settings.drain)
            .order(settings.order)
            .relay_patience(settings.relay_patience)
            .isolation_lock(settings.gate.unwrap_or_else(IsolationLock::new))
            .observe(observe);
        let (limit, of) = settings.undeliverable_limit;
        let worker = worker.undeliverable_limit(limit, of);
        let worker = match settings.backlog {
            Some(backlog) => worker.backlog(backlog),
            None => worker,
        };
        if let Some(health) = settings.health {
            health.send_replace(Some(worker.health()));
        }
        let (shutdown, when) = oneshot::channel();
        let worker = tokio::spawn(worker.run_until(async {
            let _ = when.await;
        }));
        Running { shutdown, worker }
    }

    // ===== observations =====

    /// Waits for `number` outcomes and returns them in order.
    pub(super) async fn outcomes(&self, number: usize) -> Vec<String> {
        let mut changed = self.changed.subscribe();
        let enough = async {
            loop {
                changed.mark_unchanged();
                let observed: Vec<_> = self.observed.lock().unwrap().iter().map(|(outcome, _)| word(outcome)).collect();
                if observed.len() >= number {
                    return observed;
                }
                changed.changed().await.unwrap();
            }
        };
        match tokio::time::timeout(Duration::from_secs(30), enough).await {
            Ok(outcomes) => outcomes,
            Err(_) => panic!("after 30 seconds there is only {:?}", self.observed.lock().unwrap()),
        }
    }

    /// Returns the outcomes so far, each behind its handler and key, sorted.
    pub(super) fn reports(&self) -> Vec<String> {
        let report = |(outcome, of): &(Outcome, String)| format!("{of}: {}", word(outcome));
        let mut reports: Vec<_> = self.observed.lock().unwrap().iter().map(report).collect();
        reports.sort();
        reports
    }

    /// Returns the delays of the failures that were observed.
    pub(super) fn delays(&self) -> Vec<Duration> {
        let delay = |(outcome, _): &(Outcome, String)| match outcome {
            Outcome::Scheduled { attempt: 1.., due, .. } => Some(*due),
            _ => None,
        };
        self.observed.lock().unwrap().iter().filter_map(delay).collect()
    }

    /// Runs a worker until the further outcomes are these. If a message is stored before it runs, storing is its first
    /// outcome, which is not expected where every message is stored.
    pub(super) async fn runs_to(&self, settings: Settings, further: &[&str]) {
        let known = self.outcomes(0).await.len();
        let inbox = self.world.inbox();
        let further: Vec<_> = further.iter().filter(|outcome| !inbox || **outcome != "scheduled 0").collect();
        let outcomes = self.run_with(settings, known + further.len()).await;
        assert_eq!(outcomes[known..].iter().collect::<Vec<_>>(), further);
    }

    /// Runs a worker until there are `outcomes` outcomes, and returns them in order.
    pub(super) async fn run(&self, outcomes: usize) -> Vec<String> {
        self.run_with(Settings::default(), outcomes).await
    }

    pub(super) async fn run_with(&self, settings: Settings, outcomes: usize) -> Vec<String> {
        let worker = self.start_with(settings);
        self.outcomes(outcomes).await;
        worker.stop_once_idle(&self.queue).await;
        self.outcomes(outcomes).await
    }

    /// How often an effect is in the database.
    pub(super) async fn effects(&self, name: &str) -> i64 {
        let effects = self.world.name("effects");
        self.world.number(&format!("SELECT count(*) FROM {effects} WHERE name = '{name}'")).await
    }

    pub(super) fn operator(&self) -> Operator<W::Store> {
        Operator::new(&self.store).consumer("billing")
    }

    pub(super) async fn dead(&self) -> Vec<Row> {
        self.operator().list(&Filter::default(), Page::default()).await.unwrap().rows
    }

    pub(super) async fn scheduled(&self) -> Vec<Row> {
        let scheduled = Filter::new().scheduled();
        self.operator().list(&scheduled, Page::default()).await.unwrap().rows
    }

    /// The only dead letter.
    pub(super) async fn one_dead(&self) -> Row {
        let mut rows = self.dead().await;
        assert_eq!(rows.len(), 1, "dead letters: {rows:?}");
        rows.remove(0)
    }
}

/// Outcomes whose order is not certain.
pub(super) fn sorted<T: Ord>(mut outcomes: Vec<T>) -> Vec<T> {
    outcomes.sort();
    outcomes
}

/// An outcome as text, without the delays, which jitter varies.
fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Scheduled { attempt, .. } => format!("scheduled {attempt}"),
        Outcome::Dead { reason, .. } => format!("dead: {reason}"),
        outcome => outcome.as_str().to_owned(),
    }
}
