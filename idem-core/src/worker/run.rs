//! The lifecycle of a worker: start, run, drain. The start makes all checks that can fail, and subscribes. In a drain nothing new
//! starts, running work may finish, and the rest is released.

use std::iter;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, unbounded};
use futures_util::future::join_all;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use crate::park::{self, Arrival};
use crate::process::lane;
use crate::registry::Facts;
use crate::runtime::Pipeline;
use crate::store::ConnectionShare;
use crate::{Acker, Error, Source, Store, SubscribeOptions, Worker, age, telemetry};

use super::builder::{HasHandlers, Parts};
use super::receive::{self, Arrivals, CLOSE};
use super::register::{self, Registration};
use super::{fitness, housekeeping};

/// How long cancelled work may take to end after the shutdown timeout.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    /// Runs until `shutdown` completes, and then drains: it starts no new delivery, releases deliveries that it holds,
    /// and waits up to [`shutdown_timeout`](Self::shutdown_timeout) for those that run.
    ///
    /// Dropping the future ends the worker at once, like a crash, without harm: running transactions are rolled back,
    /// and the broker delivers again.
    ///
    /// # Errors
    /// At the start: settings that would lose or repeat messages; a broker that can redeliver messages older than the
    /// retained claims; two handlers with the same name, or for one event without [`fan_out`](Self::fan_out); inbox rows
    /// of handlers that this worker does not have and that no worker has had for a day
    /// ([`SEEN_RECENTLY`](crate::store::SEEN_RECENTLY)); a database or a broker that cannot be used. Once the worker runs,
    /// `shutdown` ends it. Two errors end it as well, and then it drains: [`Error::Panicked`] if one of its tasks panics,
    /// which is a defect of idem, of a store or of a source; and [`Error::Config`] if the database does not know its
    /// handlers any more, for example because an older backup was restored: start it again, which registers them. A panic
    /// in a handler, a key, a fingerprint or a codec is a failure of its message.
    pub async fn run_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error>
    where
        Stage: HasHandlers,
    {
        // The worker is unready however it ends, even if its future is dropped.
        let _ended = scopeguard::guard(self.parts.health.clone(), |health| {
            health.set_broker(false);
            health.set_unsubscribed(None);
            health.set_database(false);
        });
        let mut shutdown = pin!(shutdown);
        let Some(mut tasks) = start(self.parts, shutdown.as_mut()).await? else { return Ok(()) };
        // The worker has to drain. If receiving has ended already, `ended` is the result of its task.
        let ended = tokio::select! {
            () = shutdown => None,
            () = tasks.pipeline.defect.seen() => None,
            ended = tasks.receiving.join_next() => ended,
        };
        drain(tasks, ended).await
    }
}

/// Checks, registers, subscribes, and spawns the tasks. Returns `None` if `shutdown` came first.
async fn start<S: Store, Src: Source>(
    mut parts: Parts<S, Src>,
    shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<Tasks<S, Src>>, Error> {
    let handlers: Vec<&Facts> = parts.handlers.iter().map(|handler| handler.facts()).collect();
    parts.settings.check(&parts.consumer)?;
    fitness::check(&handlers, &parts.source, &parts.settings)?;
    let connections = parts.store.facts().connections.add(parts.settings.connections());
    let Registration { routes, has_history, outbox } =
        register::register(&parts.consumer, &parts.store, &parts.handlers, &parts.settings).await?;
    let limit = |deliveries: usize| u16::try_from(deliveries).unwrap_or(u16::MAX);
    let options = SubscribeOptions {
        consumer: parts.consumer.clone(),
        max_unsettled: limit(parts.settings.unsettled()),
        least_unsettled: limit(parts.settings.least_unsettled()),
        handler_timeout: routes.longest_timeout(),
        order: parts.settings.order,
        has_history,
    };
    let opened = tokio::select! {
        opened = parts.source.subscribe(options.clone()) => opened,
        () = shutdown => return Ok(None),
    };
    opened.map_err(|source| Error::Broker { what: format!("could not consume {}", parts.source.name()), source })?;
    if let Err(refused) = age::check(&parts.source, &routes) {
        // Returns deliveries received in the meantime.
        let _ = timeout(CLOSE, parts.source.close()).await;
        return Err(refused);
    }
    log_start(&parts);
    log_connections(&parts, &connections);
    telemetry::describe();
    let Parts { consumer, store, source, settings, health, .. } = parts;
    health.set_broker(true);
    health.set_database(true);
    let pipeline = Arc::new(Pipeline::new(consumer, store, &source, routes, outbox, settings, health));
    Ok(Some(Tasks::spawn(pipeline, source, options, connections)))
}

/// Logs the worker's settings, for later readers of the log.
fn log_start<S: Store, Src: Source>(parts: &Parts<S, Src>) {
    let Parts { consumer, store, source, handlers, settings, .. } = parts;
    let handlers: Vec<&str> = handlers.iter().map(|handler| handler.facts().name).collect();
    tracing::info!(
        consumer,
        ?handlers,
        source = source.name(),
        broker = source.system(),
        store = store.facts().name,
        concurrency = settings.concurrency,
        prefetch = settings.unsettled(),
        inbox_concurrency = settings.inbox_concurrency(),
        batch = settings.batch,
        inbox = settings.inbox,
        fan_out = settings.fan_out,
        order = ?settings.order,
        version = env!("CARGO_PKG_VERSION"),
        "the worker has started"
    );
    // The profile of the program decides this for its dependencies too.
    if cfg!(panic = "abort") {
        tracing::warn!(
            consumer,
            "the program is built with `panic = \"abort\"`: a panic of a handler, a key or a codec ends the process, as a crash \
             does, and is no failure of its message"
        );
    }
}

/// Logs the connections that the worker can use, and the sum of those of all workers of the store, if it has fewer. By now all
/// workers of a group have their shares, so each of them has the sum of all.
fn log_connections<S: Store, Src>(Parts { consumer, settings, .. }: &Parts<S, Src>, connections: &ConnectionShare) {
    let Some(wanted) = connections.wanted() else { return };
    let (own, direct, inbox) = (settings.connections(), settings.direct(), settings.inbox_concurrency());
    let others = own - direct - inbox;
    tracing::info!(
        consumer,
        "this worker can use {own} connections at once ({direct} by `.concurrency(..)`, {inbox} by `.inbox_concurrency(..)`, \
         {others} to store deliveries and for statements of its own), and all workers of this store together {wanted}, which is more \
         than it has, so messages wait for connections: set `.connections({wanted})` to avoid this"
    );
}

/// A running worker. Dropping it ends all of its tasks.
struct Tasks<S: Store, Src: Source> {
    pipeline: Arc<Pipeline<S>>,
    queues: Arc<Arrivals<Src::Acker>>,
    /// What waits for a lane, or to be stored.
    waiting: [Receiver<Arrival<Src::Acker>>; 2],
    receiving: JoinSet<Src>,
    /// Tasks that must finish their deliveries or rows before the worker ends.
    working: JoinSet<()>,
    _beside: JoinSet<()>,
    /// The worker's share of the store's connections, reserved until this is dropped.
    _connections: ConnectionShare,
}

impl<S: Store, Src: Source> Tasks<S, Src> {
    fn spawn(
        pipeline: Arc<Pipeline<S>>,
        mut source: Src,
        options: SubscribeOptions,
        connections: ConnectionShare,
    ) -> Self {
        let settings = &pipeline.settings;
        let stores_beside_lanes = !settings.inbox && settings.is_unordered();
        let (to_lanes, lanes) = unbounded();
        // With an order, the waiting deliveries store themselves.
        let (to_store, stored) = if stores_beside_lanes { unbounded() } else { (to_lanes.clone(), lanes.clone()) };
        let (to_park, parked) = unbounded();
        let queues = Arc::new(Arrivals { lanes: to_lanes, parked: to_park, to_store });
        let waiting = [lanes.clone(), stored.clone()];
        let mut working = JoinSet::new();
        if settings.inbox || stores_beside_lanes {
            let to_park = queues.parked.clone();
            spawn(&mut working, &pipeline, "storing", |at| lane::store_batches(at, stored, to_park));
        }
        if !settings.inbox {
            for _ in 0..settings.concurrency {
                working.spawn(lane::run(pipeline.clone(), lanes.clone(), queues.parked.clone()));
            }
        }
        let to_all = queues.clone();
        spawn(&mut working, &pipeline, "parked", |at| park::run(at, parked, move |arrival| to_all.pass(arrival)));
        spawn(&mut working, &pipeline, "inbox", crate::inbox::run);
        spawn(&mut working, &pipeline, "calls", crate::call::run);
        let beside = spawn_background(&pipeline);
        let (mut receiving, at, to) = (JoinSet::new(), pipeline.clone(), queues.clone());
        // In a spawned task, because `main` runs on a thread outside the runtime's worker threads: waking that thread for each
        // delivery took about 40 microseconds of CPU time.
        receiving.spawn(async move {
            at.defect.task("receiving", receive::run(&at, &mut source, &options, &to)).await;
            source
        });
        Self { pipeline, queues, waiting, receiving, working, _beside: beside, _connections: connections }
    }
}

/// Spawns the background tasks, which run until the worker ends.
fn spawn_background<S: Store>(pipeline: &Arc<Pipeline<S>>) -> JoinSet<()> {
    let mut beside = JoinSet::new();
    spawn(&mut beside, pipeline, "watch of the database", |at| async move { at.outage.watch(&at.store).await });
    spawn(&mut beside, pipeline, "gauges", |at| async move { housekeeping::stats(&at).await });
    let of = pipeline.lag.subscribe();
    spawn(&mut beside, pipeline, "lag", |at| async move { housekeeping::source_lag(&at.consumer, of).await });
    spawn(&mut beside, pipeline, "pruning", |at| async move { housekeeping::prune(&at).await });
    spawn(&mut beside, pipeline, "signs of life", |at| async move { housekeeping::record_seen(&at).await });
    spawn(&mut beside, pipeline, "roster", |at| async move { housekeeping::beats(&at).await });
    spawn(&mut beside, pipeline, "messages of requests", |at| async move { housekeeping::handed_over(&at).await });
    if pipeline.outbox.is_some() {
        spawn(&mut beside, pipeline, "watch of the outbox", |at| async move { at.watch_outbox().await });
    }
    beside
}

/// Spawns a task. A panic in it drains the worker.
fn spawn<S: Store, W: Future<Output = ()> + Send + 'static>(
    tasks: &mut JoinSet<()>,
    pipeline: &Arc<Pipeline<S>>,
    name: &'static str,
    work: impl FnOnce(Arc<Pipeline<S>>) -> W,
) {
    let (pipeline, work) = (pipeline.clone(), work(pipeline.clone()));
    tasks.spawn(async move { pipeline.defect.task(name, work).await.unwrap_or(()) });
}

/// Drains a worker. `early` is the result of the receiving task, if it has already ended.
async fn drain<S: Store, Src: Source>(
    mut tasks: Tasks<S, Src>,
    early: Option<Result<Src, JoinError>>,
) -> Result<(), Error> {
    let pipeline = tasks.pipeline.clone();
    tracing::info!(consumer = pipeline.consumer, "the worker drains");
    pipeline.draining.cancel();
    pipeline.health.set_broker(false);
    pipeline.lag.send_replace(None);
    let ended = if early.is_some() { early } else { tasks.receiving.join_next().await };
    // Closed earlier, the queues would refuse what was received last, which would then wait for the end of the source.
    tasks.queues.close();
    // If the task was cancelled, the runtime is shutting down.
    let Some(Ok(mut source)) = ended else { return Ok(()) };
    let end = Instant::now() + pipeline.settings.shutdown_timeout;
    if pipeline.settings.is_unordered() {
        release_waiting(&pipeline, &mut source, &tasks.waiting, end).await;
    }
    finish(&pipeline, &mut tasks.working, end).await;
    if let Some(Err(_)) = pipeline.defect.task("close of the source", timeout(CLOSE_TIMEOUT, source.close())).await {
        tracing::warn!(consumer = pipeline.consumer, "the connection to the broker was not closed in time");
    }
    pipeline.defect.error().map_or(Ok(()), Err)
}

/// Ends the subscription, and releases the deliveries that wait for a lane, or to be stored, so that another worker has them while
/// handlers of this one still run and are settled. With an order, closing the source releases everything at once instead: if
/// the subscription ended while this worker still held deliveries, the next consumer would continue behind them.
async fn release_waiting<S: Store, Src: Source>(
    pipeline: &Pipeline<S>,
    source: &mut Src,
    queues: &[Receiver<Arrival<Src::Acker>>],
    end: Instant,
) {
    if let Some(Err(_)) = pipeline.defect.task("drain of the source", timeout(CLOSE_TIMEOUT, source.drain())).await {
        // A broker that hangs must not use up the shutdown timeout, which is meant for handlers.
        tracing::warn!(consumer = pipeline.consumer, "the subscription was not ended in time");
    }
    let waiting = queues.iter().flat_map(|queue| iter::from_fn(move || queue.try_recv().ok()));
    let live = waiting.filter(|arrival| arrival.acker.is_live());
    let released = join_all(live.map(|arrival| pipeline.release(arrival.acker)));
    // Deliveries that are not released in time go back when the source is closed, or when the broker has waited for long enough.
    let _ = timeout_at(end, pipeline.defect.task("release of deliveries", released)).await;
}

/// Waits until running work has finished; cancels it at `end`.
async fn finish<S: Store>(pipeline: &Pipeline<S>, working: &mut JoinSet<()>, end: Instant) {
    if timeout_at(end, all(working)).await.is_ok() {
        return;
    }
    let patience = pipeline.settings.shutdown_timeout;
    let consumer = &pipeline.consumer;
    tracing::warn!(consumer, ?patience, "`.shutdown_timeout(..)` has elapsed: handlers that still run are rolled back");
    pipeline.stop.cancel();
    if timeout(CLOSE_TIMEOUT, all(working)).await.is_err() {
        working.shutdown().await;
    }
}

async fn all(working: &mut JoinSet<()>) {
    while working.join_next().await.is_some() {}
}
