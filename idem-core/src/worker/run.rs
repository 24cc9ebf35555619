//! The life of a worker: start, run, drain.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::inbox::Leases;
use crate::pipeline::Pipeline;
use crate::registry::{Registered, Route, Routes};
use crate::store::Reservation;
use crate::telemetry::{Gauges, Meters};
use crate::{Error, Ordering, Source, Store, Terms, age};

use super::{Flights, Gate, Health, Lanes, Outage, Queue, Rows, Settings, housekeeping, lane, receive, waiting};

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
    distinct(&parts.handlers)?;
    let _connections: Reservation = parts.store.reserve(parts.settings.connections())?;
    let routes = register(&parts.consumer, &parts.store, &parts.handlers, &parts.settings).await?;
    let terms = Terms {
        consumer: parts.consumer.clone(),
        in_flight: u16::try_from(parts.settings.unsettled()).unwrap_or(u16::MAX),
        deadline: parts.settings.deadline,
        ordering: parts.settings.ordering,
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
    let broken = Arc::new(Notify::new());
    let mut working = JoinSet::new();
    if pipeline.settings.inbox {
        working.spawn(crate::inbox::store(pipeline.clone(), deliveries.clone(), broken.clone()));
    } else {
        for _ in 0..wanted {
            working.spawn(lane::run(pipeline.clone(), deliveries.clone(), waiting.clone(), broken.clone()));
        }
        if pipeline.settings.ordering != Ordering::None {
            working.spawn(waiting::run(pipeline.clone(), waiting.clone(), deliveries.clone(), broken.clone()));
        }
    }
    working.spawn(crate::inbox::run(pipeline.clone()));
    // Dropped, and so ended, with this function.
    let mut beside = JoinSet::new();
    let (watch, level, prune) = (pipeline.clone(), pipeline.clone(), pipeline.clone());
    beside.spawn(async move { watch.outage.watch(&watch.store).await });
    beside.spawn(async move { housekeeping::level(&level).await });
    beside.spawn(async move { housekeeping::prune(&prune).await });

    // In a task, because a `main` runs on a thread beside the runtime's own: to wake that one for each delivery took about
    // 40 microseconds of processor time (docs/performance.md).
    let mut receiving = JoinSet::new();
    let (at, to, panicked) = (pipeline.clone(), (deliveries.clone(), waiting.clone()), broken);
    receiving.spawn(async move {
        receive::run(&at, &mut source, &terms, (&to.0, &to.1), &panicked).await;
        source
    });

    let early = tokio::select! {
        () = shutdown => None,
        ended = receiving.join_next() => ended,
    };
    tracing::info!(consumer = pipeline.consumer, "the worker drains");
    pipeline.draining.cancel();
    pipeline.health.set_broker(false);
    deliveries.close();
    waiting.close();
    let ended = if early.is_some() { early } else { receiving.join_next().await };
    let mut source = match ended {
        Some(Ok(source)) => source,
        // A defect of an adapter ends the worker aloud, as if there were no task between.
        Some(Err(ended)) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        // The runtime shuts down.
        Some(Err(_)) | None => return Ok(()),
    };
    let end = Instant::now() + patience;
    // Where an order is kept, closing gives everything back at once instead: a subscription that ends while deliveries are
    // still held here would let the next consumer go on behind them.
    if pipeline.settings.ordering == Ordering::None && timeout(LAST_WORDS, source.drain()).await.is_err() {
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
    if timeout(LAST_WORDS, source.close()).await.is_err() {
        tracing::warn!("the connection to the broker was not closed in time");
    }
    Ok(())
}

async fn finish(working: &mut JoinSet<()>) {
    while working.join_next().await.is_some() {}
}

/// Two handlers of one name would share their claims; of two for one type of event, only one would ever run.
fn distinct<S: Store>(handlers: &[Arc<dyn Registered<S>>]) -> Result<(), Error> {
    for (at, handler) in handlers.iter().enumerate() {
        let (name, event) = (handler.name(), handler.event());
        if name.is_empty() || name.len() > 200 || name.contains('\0') {
            return Err(Error::Refused(format!("the handler name {name:?} must have 1 to 200 bytes and no NUL")));
        }
        for earlier in &handlers[..at] {
            if earlier.name() == name {
                return Err(Error::Refused(format!(
                    "two handlers have the name {name:?}: give one of them another, `#[idempotent(name = \"..\")]`"
                )));
            }
            if earlier.event() == event {
                let event = event.map_or_else(|| "no type of event".to_owned(), |event| format!("the event {event:?}"));
                return Err(Error::Refused(format!(
                    "the handlers {:?} and {name:?} both name {event}: give each its own, `#[idempotent(event = \
                     \"..\")]`",
                    earlier.name()
                )));
            }
        }
    }
    Ok(())
}

/// Gives each handler its number, and refuses to leave rows behind that nobody would ever run.
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
    if !settings.leave_unregistered {
        let waiting = store.waiting(consumer).await.map_err(failed)?;
        if let Some(name) = waiting.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Error::Refused(format!(
                "the inbox has rows of {consumer:?} for the handler {name:?}, which this worker does not have: register \
                 it, or rename it in the table `handlers`, or start with `.leave_unregistered()`"
            )));
        }
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
        event_type: settings.event_type.clone(),
    })
}

fn assemble<S: Store, Src: Source>(parts: Parts<S, Src>, routes: Routes<S>) -> (Arc<Pipeline<S>>, Src) {
    let Parts { consumer, store, source, settings, health, gate, .. } = parts;
    let alone = settings.inbox.then(|| Semaphore::new(crate::inbox::ALONE));
    let pipeline = Pipeline {
        store,
        alone,
        system: source.system(),
        routes,
        pace: crate::batch::Pace::new(settings.batch),
        flights: Flights::default(),
        gate,
        leases: Leases::default(),
        own_statements: Mutex::new(()),
        outage: Outage::new(health.clone()),
        health,
        gauges: Gauges::new(&consumer),
        parked: Notify::new(),
        rows: Rows::default(),
        lanes: Lanes::default(),
        draining: CancellationToken::new(),
        stop: CancellationToken::new(),
        settings,
        consumer,
    };
    (Arc::new(pipeline), source)
}
