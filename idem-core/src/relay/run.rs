//! The lifecycle of a relay: it opens its sink, stands by, publishes for as long as it has the lease, and drains.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::outbox::{Sink, SinkError};
use crate::runtime::{Health, jittered};
use crate::store::{LeaseRequest, OutboxId};
use crate::telemetry::{self, RelayMetrics};
use crate::{Error, Store};

use super::builder::RelaySettings;
use super::circuit::wait;
use super::lease::{ASK, stand_by};
use super::tenure::{End, Parts, Tenure};
use super::watch::watch;

/// How many statements a relay runs at once at most: a read, a delete, a record, a renewal, and one for the gauges.
const STATEMENTS: usize = 5;

/// How long the end of the connection to the broker, or the return of the lease, may take.
const CLOSE: Duration = Duration::from_secs(5);

/// How often a relay shows at least that it waits for its broker.
const SHOW: Duration = Duration::from_secs(5);

pub(super) async fn until<S: Store, K: Sink>(
    (name, store, sink): (String, S, K),
    settings: RelaySettings,
    health: Health,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    settings.check(&name)?;
    // However it ends, even if its future is dropped.
    let _ended = scopeguard::guard(health.clone(), |health| {
        health.set_broker(false);
        health.set_database(false);
    });
    let mut shutdown = pin!(shutdown);
    // Counted, so that the advice on connections is right.
    let _connections = store.facts().connections.add_relay(STATEMENTS)?;
    let outbox = store.register_outbox(&name).await?;
    telemetry::describe();
    let sink = Arc::new(sink);
    let opened = tokio::select! {
        opened = open(&*sink) => opened.map(|()| true),
        () = shutdown.as_mut() => Ok(false),
        never = show(&store, outbox, settings.lease) => match never {},
    };
    if !matches!(opened, Ok(true)) {
        close(&*sink).await;
        return opened.map(|_| ());
    }
    tracing::info!(
        outbox = name,
        sink = sink.name(),
        broker = sink.system(),
        store = store.facts().name,
        concurrency = settings.concurrency,
        version = env!("CARGO_PKG_VERSION"),
        "the relay has started"
    );
    let _limit = store.facts().bell.set_limit(outbox, sink.limit());
    health.set_broker(true);
    // In a task of its own, as the tasks of a worker are: `main` runs on a thread outside the runtime's worker threads.
    let (stop, mut task) = (CancellationToken::new(), JoinSet::new());
    let stops = stop.clone();
    task.spawn(async move { serve((name, store, sink), outbox, settings, health, stops).await });
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

/// Opens the sink, as soon as the broker answers.
async fn open<K: Sink>(sink: &K) -> Result<(), Error> {
    for failures in 0.. {
        match sink.open().await {
            Ok(()) => break,
            Err(SinkError::Message(error)) => {
                return Err(Error::Broker { what: format!("could not publish to {}", sink.name()), source: error });
            }
            Err(SinkError::Broker(error)) => {
                let error = crate::error::text(error.as_ref());
                tracing::warn!(error, sink = sink.name(), "the relay could not open its sink; it tries again");
                sleep(wait(failures)).await;
            }
        }
    }
    Ok(())
}

/// Shows that a relay runs while it opens its sink, until the future is dropped: workers that stage must not take it for missing.
/// It begins after a while, since most sinks open at once.
async fn show<S: Store>(store: &S, outbox: OutboxId, lease: Duration) -> Infallible {
    loop {
        sleep(jittered(SHOW.min(lease / 3))).await;
        if let Err(fault) = store.lease_outbox(outbox, Uuid::nil(), LeaseRequest::Show).await {
            let error = crate::error::text(&fault);
            tracing::debug!(error, "a relay could not show that it waits for its broker");
        }
    }
}

async fn close<K: Sink>(sink: &K) {
    if timeout(CLOSE, sink.close()).await.is_err() {
        tracing::warn!("the connection to the broker was not closed in time");
    }
}

/// Gives the lease back, if it is held.
async fn release<S: Store>(store: &S, outbox: OutboxId, token: Uuid) {
    if !matches!(timeout(CLOSE, store.lease_outbox(outbox, token, LeaseRequest::Release)).await, Ok(Ok(_))) {
        tracing::warn!("the lease was not given back; another relay takes it when it has ended");
    }
}

async fn serve<S: Store, K: Sink>(
    (name, store, sink): (String, S, Arc<K>),
    outbox: OutboxId,
    settings: RelaySettings,
    health: Health,
    stop: CancellationToken,
) -> Result<(), Error> {
    let metrics = RelayMetrics::new(&name);
    let parts = Parts { store: &store, sink: &*sink, settings: &settings, health: &health, metrics: &metrics };
    let result = tokio::select! {
        result = tenures(&parts, &name, outbox, &stop) => result,
        never = watch(&store, outbox, &metrics) => match never {},
    };
    close(&*sink).await;
    result
}

/// Publishes whenever it has the lease, until it is stopped, or the sink is broken.
async fn tenures<S: Store, K: Sink>(
    parts: &Parts<'_, S, K>,
    name: &str,
    mut outbox: OutboxId,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let Parts { store, settings, health, metrics, .. } = *parts;
    loop {
        let token = Uuid::new_v4();
        metrics.active.set(0.0);
        let leased = tokio::select! {
            leased = stand_by(store, (name, outbox, token), settings.lease, health) => Some(leased),
            () = stop.cancelled() => None,
        };
        let Some((lease, registered)) = leased else {
            release(store, outbox, token).await;
            return Ok(());
        };
        outbox = registered;
        metrics.active.set(1.0);
        let mut tenure = Tenure::new(parts, outbox, token, lease);
        let end = tenure.run(stop).await;
        if let End::Stopped | End::Away | End::Defect(_) = end {
            health.set_broker(false);
            tracing::info!(outbox = name, "the relay drains");
            tenure.drain().await;
        }
        drop(tenure);
        match end {
            End::Lost => {
                tracing::warn!(
                    outbox = name,
                    "another relay has taken the lease of this one, which did not renew it in time"
                );
                continue;
            }
            _ => release(store, outbox, token).await,
        }
        match end {
            End::Stopped => return Ok(()),
            End::Defect(error) => return Err(error),
            End::Away => {
                tracing::warn!(
                    outbox = name,
                    "the broker is still away: the relay leaves the lease to another one, if there is one"
                );
                // One that stands by has asked for it by then.
                tokio::select! {
                    () = sleep(2 * ASK) => {}
                    () = stop.cancelled() => return Ok(()),
                }
            }
            End::Lost | End::Replaced => {}
        }
    }
}
