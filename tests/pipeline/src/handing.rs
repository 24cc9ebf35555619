//! The workers of the cases about local messages.

use idem_core::{HandlerOptions, Worker};

use idem_conformance::store::World;
use idem_test::Publication;

use super::line::{Line, sorted};
use super::local_handlers::{ById, Hands, HandsBatch, Receives};
use super::orders::Order;
use super::running::Running;
use super::settings::Settings;

/// A queue of events whose handlers hand over.
pub(super) struct Handing<W: World>(pub(super) Line<W>);

impl<W: World> Handing<W> {
    pub(super) async fn new(world: W) -> Self {
        Self(Line::new(world).await)
    }

    pub(super) fn publish(&self, event: &str, order: Order) {
        self.0.publish_raw(Publication::from(order).event_type(event));
    }

    pub(super) fn start(&self, settings: Settings) -> Running {
        let worker = Worker::new(settings.consumer, self.0.store.clone(), self.0.queue.clone());
        let worker = worker.state(self.0.desk.clone()).handler::<Hands<W>>().handler::<HandsBatch<W>>();
        let worker = worker.handler::<Receives<W>>().handler_options::<ById<W>>(HandlerOptions::new().local_only());
        self.0.run_until_stopped(worker, settings)
    }

    /// Runs a worker until there are so many outcomes, and returns them sorted.
    pub(super) async fn run(&self, outcomes: usize) -> Vec<String> {
        self.run_with(Settings::default(), outcomes).await
    }

    pub(super) async fn run_with(&self, settings: Settings, outcomes: usize) -> Vec<String> {
        let worker = self.start(settings);
        self.0.outcomes(outcomes).await;
        worker.stop_once_idle(&self.0.queue).await;
        sorted(self.0.outcomes(outcomes).await)
    }

    /// How many claims there are of messages that were handed over.
    pub(super) async fn claims(&self) -> i64 {
        let (claims, handlers) = (self.0.world.own("processed_messages"), self.0.world.own("handlers"));
        let of = format!("SELECT id FROM {handlers} WHERE name IN ('receives', 'by_id')");
        self.0.world.number(&format!("SELECT count(*) FROM {claims} WHERE handler_id IN ({of})")).await
    }
}
