//! The life of a worker: start, run, drain.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::registry::{Registered, Route, Routes};
use crate::runtime::{
    Brake, Defect, Flights, Gate, Health, Lanes, Leases, Outage, Pipeline, Preparations, Queue, Refusals, Rows,
    Settings,
};
use crate::store::Reservation;
use crate::telemetry::{Gauges, Meters};
use crate::{Error, Ordering, Source, Store, Terms, age};

use super::receive::Arrivals;
use super::{Unregistered, fitness, housekeeping, lag, lane, receive};
use crate::process::waiting;

/// What a worker is made of, once its handlers' types are erased.
pub(crate) struct Parts<S, Src> {
    pub(crate) consumer: String,
    pub(crate) store: S,
    pub(crate) source: Src,
    pub(crate) handlers: Vec<Arc<dyn Registered<S>>>,
    pub(crate) settings: Settings,
    pub(crate) health: Health,
    pub(crate) gate: Gate,
}

/// How long what was cut off may take to let go, after the patience of the drain.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(crate) async fn until<S: Store, Src: Source>(
    parts: Parts<S, Src>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let _ended = Ended(parts.health.clone());
    serve(parts, shutdown).await
}

/// Makes a worker unready however it ends: a future that is dropped runs no further line.
struct Ended(Health);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set_broker(false);
        self.0.set_database(false);
    }
}

async fn serve<S: Store, Src: Source>(
    mut parts: Parts<S, Src>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let mut shutdown = pin!(shutdown);
    parts.settings.check(&parts.consumer)?;
    fitness::distinct(&parts.handlers, &parts.settings.route_by)?;
    fitness::subjects(&parts.source, &parts.settings.route_by)?;
    fitness::keys(&parts.source, &parts.handlers, &parts.settings)?;
    let _connections: Reservation = parts.store.reserve(parts.settings.connections())?;
    let routes = register(&parts.consumer, &parts.store, &parts.handlers, &parts.settings).await?;
    let terms = Terms {
        consumer: parts.consumer.clone(),
        in_flight: u16::try_from(parts.settings.unsettled()).unwrap_or(u16::MAX),
        deadline: parts.settings.deadline,
        ordering: parts.settings.ordering,
        has_history: history(&parts.consumer, &parts.store).await?,
    };
    let wanted = parts.settings.in_flight;
    let opened = tokio::select! {
        opened = parts.source.open(terms.clone()) => opened,
        () = &mut shutdown => return Ok(()),
    };
    opened.map_err(|source| Error::Broker { what: format!("could not consume {}", parts.source.name()), source })?;
    if let Err(refused) = age::check(&parts.source, routes.retention()) {
        // What was handed to us meanwhile goes back.
        let _ = timeout(LAST_WORDS, parts.source.close()).await;
        return Err(refused);
    }
    parts.health.set_broker(true);
    parts.health.set_database(true);

    let patience = parts.settings.drain;
    let (pipeline, mut source) = assemble(parts, routes);
    let (deliveries, waiting) = (Queue::new(), Queue::new());
    let mut working = JoinSet::new();
    // With an order, those that wait for their turn store themselves.
    let beside = !pipeline.settings.inbox && pipeline.settings.ordering == Ordering::None;
    let redelivered = if beside { Queue::new() } else { deliveries.clone() };
    if pipeline.settings.inbox || beside {
        let (at, from) = (pipeline.clone(), redelivered.clone());
        working.spawn(async move { at.task("storing", crate::inbox::store(at.clone(), from)).await.unwrap_or(()) });
    }
    if !pipeline.settings.inbox {
        for _ in 0..wanted {
            working.spawn(lane::run(pipeline.clone(), deliveries.clone(), waiting.clone()));
        }
        let (at, from, to) = (pipeline.clone(), waiting.clone(), deliveries.clone());
        working.spawn(async move { at.task("waiting", waiting::run(at.clone(), from, to)).await.unwrap_or(()) });
    }
    let at = pipeline.clone();
    working.spawn(async move { at.task("inbox", crate::inbox::run(at.clone())).await.unwrap_or(()) });
    // Dropped, and so ended, with this function.
    let mut beside = JoinSet::new();
    let (watch, level, prune, seen) = (pipeline.clone(), pipeline.clone(), pipeline.clone(), pipeline.clone());
    beside.spawn(
        async move { watch.task("watch of the database", watch.outage.watch(&watch.store)).await.unwrap_or(()) },
    );
    beside.spawn(async move { level.task("gauges", housekeeping::level(&level)).await.unwrap_or(()) });
    let (at, of) = (pipeline.clone(), pipeline.lag.subscribe());
    beside.spawn(async move { at.task("lag", lag::publish(&at.consumer, of)).await.unwrap_or(()) });
    beside.spawn(async move { prune.task("pruning", housekeeping::prune(&prune)).await.unwrap_or(()) });
    beside.spawn(async move { seen.task("signs of life", housekeeping::seen(&seen)).await.unwrap_or(()) });

    // In a task, because a `main` runs on a thread beside the runtime's own: to wake that one for each delivery took about
    // 40 microseconds of processor time (docs/performance.md).
    let mut receiving = JoinSet::new();
    let at = pipeline.clone();
    let to = Arrivals { lanes: deliveries.clone(), redelivered: redelivered.clone(), waiting: waiting.clone() };
    receiving.spawn(async move {
        at.task("receiving", receive::run(&at, &mut source, &terms, &to)).await;
        source
    });

    let early = tokio::select! {
        () = shutdown => None,
        () = pipeline.defect.seen() => None,
        ended = receiving.join_next() => ended,
    };
    tracing::info!(consumer = pipeline.consumer, "the worker drains");
    pipeline.draining.cancel();
    pipeline.health.set_broker(false);
    deliveries.close();
    waiting.close();
    redelivered.close();
    let ended = if early.is_some() { early } else { receiving.join_next().await };
    let mut source = match ended {
        Some(Ok(source)) => source,
        // The runtime shuts down.
        Some(Err(_)) | None => return Ok(()),
    };
    let end = Instant::now() + patience;
    // Where an order is kept, closing gives everything back at once instead: a subscription that ends while deliveries are
    // still held here would let the next consumer go on behind them.
    if pipeline.settings.ordering == Ordering::None
        && let Some(Err(_)) = pipeline.task("drain of the source", timeout(LAST_WORDS, source.drain())).await
    {
        // A broker that hangs must not take the patience that is meant for handlers.
        tracing::warn!("the subscription was not ended in time");
    }
    if timeout_at(end, finish(&mut working)).await.is_err() {
        tracing::warn!(?patience, "the patience of the drain has ended; what runs is rolled back");
        pipeline.stop.cancel();
        if timeout(LAST_WORDS, finish(&mut working)).await.is_err() {
            working.shutdown().await;
        }
    }
    if let Some(Err(_)) = pipeline.task("close of the source", timeout(LAST_WORDS, source.close())).await {
        tracing::warn!("the connection to the broker was not closed in time");
    }
    pipeline.defect.error().map_or(Ok(()), Err)
}

async fn finish(working: &mut JoinSet<()>) {
    while working.join_next().await.is_some() {}
}

/// Whether this consumer has handled anything before, under any of its handlers.
async fn history<S: Store>(consumer: &str, store: &S) -> Result<bool, Error> {
    store.has_history(consumer).await.map_err(|fault| Error::Database {
        what: format!("could not look for claims of {consumer:?}"),
        source: fault.into(),
    })
}

/// Gives each handler its number, shows that a worker has it, and refuses to leave rows behind that nobody would ever run.
async fn register<S: Store>(
    consumer: &str,
    store: &S,
    handlers: &[Arc<dyn Registered<S>>],
    settings: &Settings,
) -> Result<Routes<S>, Error> {
    let failed = |fault: crate::store::Fault| Error::Database {
        what: format!("could not register the handlers of {consumer:?}"),
        source: fault.into(),
    };
    let names: Vec<&str> = [""].into_iter().chain(handlers.iter().map(|handler| handler.name())).collect();
    let ids = store.register(consumer, &names).await.map_err(failed)?;
    let retentions = store.retention(&ids).await.map_err(failed)?;
    // Before anything is refused, so that of two workers that would refuse each other the second one starts.
    store.seen(&ids).await.map_err(failed)?;
    if !settings.leave_unregistered {
        let waiting = store.waiting(consumer).await.map_err(failed)?;
        Unregistered { consumer, names: &names[1..] }
            .check(&waiting, |handler, new| store.cures(consumer, handler, new))?;
    }
    let mut ids = ids.into_iter().zip(retentions);
    let Some((nobody, _)) = ids.next() else {
        return Err(Error::Refused("the store has registered no handler".to_owned()));
    };
    let route = |((id, retention), handler): ((_, _), &Arc<dyn Registered<S>>)| Route {
        id,
        retention,
        meters: Meters::new(consumer, handler.name()),
        handler: handler.clone(),
    };
    Ok(Routes {
        routes: ids.zip(handlers).map(route).collect(),
        nobody,
        nobody_meters: Meters::new(consumer, ""),
        route_by: settings.route_by.clone(),
    })
}

fn assemble<S: Store, Src: Source>(parts: Parts<S, Src>, routes: Routes<S>) -> (Arc<Pipeline<S>>, Src) {
    let Parts { consumer, store, source, settings, health, gate, .. } = parts;
    let alone = Semaphore::new(settings.stored_at_once().alone);
    let pipeline = Pipeline {
        store,
        alone,
        system: source.system(),
        routes,
        pace: crate::runtime::Pace::new(settings.batch),
        flights: Flights::default(),
        gate,
        leases: Leases::default(),
        refusals: Refusals::default(),
        preparations: Preparations::default(),
        own_statements: Mutex::new(()),
        outage: Arc::new(Outage::new(health.clone(), settings.unsettled())),
        brake: Brake::new(settings.unfit_limit, health.clone()),
        defect: Defect::default(),
        health,
        gauges: Gauges::new(&consumer),
        lag: watch::Sender::new(source.lag()),
        parked: Notify::new(),
        rows: Rows::default(),
        lanes: Lanes::default(),
        settled: AtomicU64::new(0),
        draining: CancellationToken::new(),
        stop: CancellationToken::new(),
        settings,
        consumer,
    };
    (Arc::new(pipeline), source)
}
