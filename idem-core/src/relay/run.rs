//! The lifecycle of a relay: start, run, drain.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::task::JoinSet;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::outbox::Sink;
use crate::runtime::Health;
use crate::store::OutboxId;
use crate::telemetry::{self, RelayMetrics};
use crate::{Error, Store};

use super::opening::{open, show};
use super::parts::Parts;
use super::settings::RelaySettings;
use super::state::Running;

/// How many statements a relay runs at once at most: each kind once.
const STATEMENTS: usize = 5;

/// How long the end of the connection to the broker, or the return of the lanes, may take.
const CLOSE: Duration = Duration::from_secs(5);

pub(super) async fn until<S: Store, K: Sink>(
    parts: Parts<S, K>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let Parts { name, store, sink, settings, health } = parts;
    settings.check(&name)?;
    let _ended = Ended(health.clone());
    let mut shutdown = pin!(shutdown);
    store.check_relay()?;
    let outbox = store.register_outbox(&name).await?;
    telemetry::describe();
    // Counted, so that the advice on connections is right. A store that is too small for a worker is no error here.
    let _connections = store.share_connections(STATEMENTS).ok();
    let sink = Arc::new(sink);
    // From here on it is alive, under the name under which it then holds lanes.
    let token = Uuid::new_v4();
    let opened = tokio::select! {
        opened = open(&*sink) => opened.map(|()| true),
        () = shutdown.as_mut() => Ok(false),
        never = show(&store, outbox, token, settings.lease) => match never {},
    };
    if !matches!(opened, Ok(true)) {
        end(&store, outbox, token).await;
        close(&*sink).await;
        return opened.map(|_| ());
    }
    tracing::info!(
        outbox = name,
        sink = sink.name(),
        broker = sink.system(),
        store = store.describe(),
        concurrency = settings.concurrency,
        version = env!("CARGO_PKG_VERSION"),
        "the relay has started"
    );
    let _limit = store.bell().map(|bell| bell.set_limit(outbox, sink.limit()));
    health.set_broker(true);
    // In a task of its own, as the tasks of a worker are: `main` runs on a thread outside the runtime's worker threads.
    let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
    let (stops, of) = (stop.clone(), (store, sink, outbox, name));
    task.spawn(async move { serve(of, token, settings, health, stops).await });
    let ended = tokio::select! {
        ended = task.join_next() => ended,
        () = shutdown => {
            stop.cancel();
            task.join_next().await
        }
    };
    match ended {
        Some(Ok(result)) => result,
        Some(Err(error)) if error.is_panic() => {
            let text = crate::panic_text::panic_text(error.into_panic().as_ref()).to_owned();
            Err(Error::Panicked { task: "relay", text })
        }
        // The runtime is shutting down.
        _ => Ok(()),
    }
}

/// Makes a relay unready however it ends, even if its future is dropped.
struct Ended(Health);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set_broker(false);
        self.0.set_database(false);
    }
}

/// Gives the lanes back, and records that the relay has ended.
async fn end<S: Store>(store: &S, outbox: OutboxId, token: Uuid) {
    if timeout(CLOSE, store.give_lanes(outbox, token, None)).await.is_err() {
        tracing::warn!("the lanes were not given back in time; another relay takes them at the end of their leases");
    }
}

async fn close<K: Sink>(sink: &K) {
    if timeout(CLOSE, sink.close()).await.is_err() {
        tracing::warn!("the connection to the broker was not closed in time");
    }
}

async fn serve<S: Store, K: Sink>(
    (store, sink, outbox, name): (S, Arc<K>, OutboxId, String),
    token: Uuid,
    settings: RelaySettings,
    health: Health,
    stop: CancellationToken,
) -> Result<(), Error> {
    let result = {
        let metrics = RelayMetrics::new(&name);
        let mut running = Running::new((&store, &*sink, outbox), &settings, &health, metrics);
        running.token = token;
        run(&mut running, &stop).await;
        health.set_broker(false);
        tracing::info!(outbox = name, "the relay drains");
        drain(&mut running).await;
        let defect = running.defect.take();
        drop(running);
        end(&store, outbox, token).await;
        defect.map_or(Ok(()), Err)
    };
    close(&*sink).await;
    result
}

/// Publishes until it is stopped, or the sink is broken.
async fn run<S: Store, K: Sink>(running: &mut Running<'_, S, K>, stop: &CancellationToken) {
    let mut bell = running.store.bell().map(crate::outbox::Bell::listen);
    while running.defect.is_none() {
        let now = Instant::now();
        running.start(now);
        let rung = async {
            match &mut bell {
                // The sender lives in the store, so waiting cannot fail.
                Some(bell) => drop(bell.changed().await),
                None => std::future::pending().await,
            }
        };
        let next = running.next(now);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            Some(event) = running.work.next() => running.apply(event),
            () = rung => running.ring(),
            // The lanes are renewed then. It comes behind the sink, which may have used up what tokio allows a task in a turn.
            () = unconstrained(sleep_until(next)) => {}
        }
        // All that has ended by now, before anything is started.
        while let Some(Some(event)) = futures_util::FutureExt::now_or_never(running.work.next()) {
            running.apply(event);
        }
    }
}

/// Waits for the confirms of what is published, and writes what they say.
async fn drain<S: Store, K: Sink>(running: &mut Running<'_, S, K>) {
    running.draining = true;
    let end = Instant::now() + running.settings.shutdown_timeout;
    loop {
        let now = Instant::now();
        running.start(now);
        if running.is_drained() {
            return;
        }
        let next = running.next(now).min(end);
        tokio::select! {
            Some(event) = running.work.next() => running.apply(event),
            () = sleep_until(next) => {}
        }
        if Instant::now() >= end {
            tracing::warn!("the shutdown timeout has elapsed: what is not confirmed is published again");
            return;
        }
    }
}
