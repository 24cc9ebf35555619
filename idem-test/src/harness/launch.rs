//! A process of a trial: its worker, and the relay beside it.

use std::sync::Arc;
use std::time::Duration;

use idem_core::{Codec, Error, Extract, Handler, HasConnection, IsolationLock, Param as _, RetryPolicy, Store, Worker};
use tokio::sync::oneshot;

use crate::tapped_store::{Over, TappedStore};
use crate::trace::Trace;
use crate::{MemorySink, Tapped};

use super::connect::{Connect, Connecting};
use super::crash_plan::CrashPlan;
use super::locals::{Locals, TrialWorker};
use super::relay::relay;
use super::shared_codec::Shared;
use super::source::{Identify, Receiving};
use super::trial::{CONSUMER, QUEUE, Start};

/// The settings of each worker.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) inbox: bool,
    pub(super) batch: usize,
    pub(super) route_by: RouteBy,
    pub(super) trace: Option<Trace>,
}

/// The part of a message that selects its handler.
#[derive(Debug, Clone)]
pub(super) enum RouteBy {
    EventType,
    Header(String),
    Subject,
}

/// The parts that all processes of a trial share.
pub(super) struct Common<F, St, C> {
    pub(super) connect: F,
    pub(super) state: St,
    pub(super) codec: Arc<C>,
    pub(super) settings: Settings,
    pub(super) identify: Identify,
    pub(super) sink: Option<MemorySink>,
}

type StoreOf<F> = <<F as Connect>::Output as Connecting>::Store;

impl<F, St, C> Common<F, St, C>
where
    F: Connect,
    St: Clone + Send + Sync + 'static,
{
    /// Runs a process with this handler until it is shut down.
    pub(super) async fn run<H, L>(
        self: Arc<Self>,
        start: Start,
        crash_plan: CrashPlan,
        shutdown: oneshot::Receiver<()>,
    ) -> Result<(), Error>
    where
        H: Handler,
        H::Params: Extract<St>,
        StoreOf<F>: HasConnection<H::Connection>,
        C: Codec<H::Message>,
        L: Locals<StoreOf<F>, St, C>,
    {
        let store = self.connect.connect().await?;
        if crash_plan.is_counted() {
            warm(&store).await?;
        }
        let store = TappedStore::new(store, crash_plan.clone());
        let relay = self.sink.clone().map(|sink| relay(store.clone(), sink, crash_plan.clone()));
        let worker = L::add(self.worker::<H>(store, start, crash_plan));
        let shutdown = async {
            // A dropped sender also means shutdown.
            let _ = shutdown.await;
        };
        let Some(relay) = relay else { return worker.run_until(shutdown).await };
        // It publishes until the worker has ended.
        let (end, ended) = oneshot::channel::<()>();
        let worker = async {
            let result = worker.run_until(shutdown).await;
            drop(end);
            result
        };
        let relay = relay.run_until(async {
            let _ = ended.await;
        });
        tokio::try_join!(worker, relay).map(drop)
    }

    /// The worker of a process, without handlers of local messages.
    fn worker<H>(
        &self,
        store: TappedStore<StoreOf<F>, CrashPlan>,
        start: Start,
        crash_plan: CrashPlan,
    ) -> TrialWorker<StoreOf<F>, St, C>
    where
        H: Handler,
        H::Params: Extract<St>,
        StoreOf<F>: HasConnection<H::Connection>,
        C: Codec<H::Message>,
    {
        let Settings { inbox, batch, route_by, .. } = &self.settings;
        let stores = *inbox || H::Params::CALLS > 0;
        let receiving = Receiving { crash_plan, identify: self.identify.clone(), stores };
        let Start { broker, watched, concurrency, ahead, lease } = start;
        let source = Tapped::new(broker.queue(QUEUE), receiving);
        let worker = Worker::new(CONSUMER, store, source).state(self.state.clone()).codec(Shared(self.codec.clone()));
        let worker = worker.handler::<Over<H, StoreOf<F>, CrashPlan>>();
        let worker = if *inbox { worker.inbox() } else { worker };
        let worker = if !ahead && *batch == 1 { worker.prefetch(concurrency) } else { worker };
        let worker = if H::NEEDS_CLOUD_EVENT { worker.cloud_events() } else { worker };
        let worker = match route_by {
            RouteBy::EventType => worker,
            RouteBy::Header(header) => worker.event_type(header),
            RouteBy::Subject => worker.route_by_subject(),
        };
        let quick = RetryPolicy::new().min_delay(Duration::from_millis(1)).max_delay(Duration::from_millis(10));
        worker
            .batch(*batch)
            .concurrency(concurrency)
            .inbox_concurrency(2)
            .retry(quick)
            .poll_interval(Duration::from_millis(20))
            .lease_duration(lease)
            .isolation_lock(IsolationLock::new())
            .observe(move |observed| watched.push(observed.outcome.clone()))
    }
}

/// Opens the connection that the first message will use, so that the points of its login are not counted.
async fn warm<S: Store>(store: &S) -> Result<(), Error> {
    let opened = async { store.rollback(store.begin(Duration::from_secs(10)).await?).await };
    opened.await.map(drop).map_err(|error| Error::database("could not begin a transaction", error))
}
