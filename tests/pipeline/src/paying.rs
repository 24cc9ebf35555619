//! The workers of the cases about external calls.

use std::time::Duration;

use idem_core::store::Row;
use idem_core::{RetryPolicy, Worker};
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::provider::{Fault, Provider};
use idem_test::tapped_store::{Over, TappedStore};

use super::faulty::{Do, Faulty};
use super::line::Line;
use super::orders::{Act, Order};
use super::payments::Pays;
use super::running::Running;
use super::settings::Settings;

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
