//! Background tasks of a worker: it prunes old claims, reads the gauges and records that it is alive.

use std::time::Duration;

use tokio::time::timeout;

use crate::runtime::Pipeline;
use crate::store::{StoreError, as_ours};
use crate::{Error, Store};

use super::left_calls;
use super::unregistered::Unregistered;

const READ_EVERY: Duration = Duration::from_secs(15);
/// If counting fails, the interval doubles up to this.
const SELDOM: Duration = Duration::from_secs(300);
/// How long reading the gauges may take. This is shorter than any store's timeout for its own statements, so that a
/// slow count costs one connection and is not mistaken for an outage.
const COUNT: Duration = Duration::from_secs(5);
const PRUNE: Duration = Duration::from_secs(60);
/// How often a worker records that its handlers are alive.
const SEEN: Duration = Duration::from_secs(60);
/// How many of these intervals pass between two checks for rows that no worker runs, or not for long.
const REMIND: u64 = 60;

/// Reads the inbox counts for the gauges, until the future is dropped. No message depends on the gauges, so their
/// failure is never an outage.
pub(crate) async fn stats<S: Store>(pipeline: &Pipeline<S>) {
    let handlers = pipeline.routes.ids();
    let mut wait = READ_EVERY;
    loop {
        match timeout(COUNT, pipeline.store.stats(&handlers)).await {
            Ok(Ok(stats)) => {
                wait = READ_EVERY;
                pipeline.metrics.scheduled.set(stats.scheduled as f64);
                pipeline.metrics.dead.set(stats.dead as f64);
                pipeline.metrics.oldest_due.set(stats.oldest_due.unwrap_or_default().as_secs_f64());
            }
            Ok(Err(fault)) => {
                wait = (wait * 2).min(SELDOM);
                let (consumer, error) = (&pipeline.consumer, crate::error::text(&fault));
                tracing::warn!(consumer, error, next = ?wait, "the inbox gauges could not be read");
            }
            Err(_) => {
                wait = (wait * 2).min(SELDOM);
                let consumer = &pipeline.consumer;
                tracing::warn!(consumer, limit = ?COUNT, next = ?wait, "reading the inbox gauges timed out");
            }
        }
        tokio::time::sleep(wait).await;
        pipeline.outage.over().await;
    }
}

/// Removes claims older than the retention, until the future is dropped. Only one pruner works at a time, whatever the
/// number of workers.
pub(crate) async fn prune<S: Store>(pipeline: &Pipeline<S>) {
    loop {
        // Wait first: pruning should not slow down a deployment that starts many workers.
        tokio::time::sleep(PRUNE).await;
        pipeline.outage.over().await;
        match pipeline.store.prune().await {
            Ok(pruned) if pruned.claims > 0 => tracing::debug!(claims = pruned.claims, "old claims are pruned"),
            Ok(_) => {}
            Err(fault @ StoreError::ConnectionLost(_)) => pipeline.outage.report(&fault),
            // Also if the database refuses it: messages may work, and find out by themselves if they do not.
            Err(fault) => tracing::debug!(error = %fault, "pruning failed; it is retried later"),
        }
    }
}

/// Records that its handlers are alive, until the future is dropped, so that other workers of this consumer leave their
/// rows to them. Once an hour it checks for rows that no worker runs; otherwise only a start would report them. At the
/// start and once an hour it lets messages run that another version has stored for an external call.
///
/// It also finds out if the handlers or the outbox are not in the database any more.
///
/// Nothing depends on it until a day has passed, so its failure is not an outage.
pub(crate) async fn record_seen<S: Store>(pipeline: &Pipeline<S>) {
    let handlers = pipeline.routes.ids();
    for minute in 1_u64.. {
        // The first time without a wait: the registration of the handlers skipped locked rows.
        match pipeline.store.record_seen(&handlers).await {
            Ok(true) => {}
            Ok(false) => register_again(pipeline).await,
            Err(fault) => {
                tracing::debug!(error = %fault, "the handlers' last-seen time was not written; it is retried later");
            }
        }
        if minute > 1 {
            check_outbox(pipeline).await;
        }
        if minute % REMIND == 1 {
            left_calls::release(pipeline).await;
        }
        if minute % REMIND == 0 && !pipeline.settings.allow_unregistered_rows {
            remind(pipeline).await;
        }
        tokio::time::sleep(SEEN).await;
        pipeline.outage.over().await;
    }
}

/// Registers handlers that are not in the database any more, because it was restored from a backup that is older than they
/// are, or lost its last transactions in a failover. Names have the same numbers again. If one has another number, its claims
/// and rows belong to that one, and the worker ends.
async fn register_again<S: Store>(pipeline: &Pipeline<S>) {
    let Pipeline { consumer, store, routes, defect, .. } = pipeline;
    let names: Vec<&str> = [""].into_iter().chain(routes.routes.iter().map(|route| route.handler.name())).collect();
    let before: Vec<_> = [routes.nobody].into_iter().chain(routes.routes.iter().map(|route| route.id)).collect();
    match store.register(consumer, &names).await {
        Ok(now) if now == before => tracing::warn!(
            consumer,
            "handlers of this consumer were missing in the database, and are registered again: it was restored from a backup \
             that is older than they are, or it has lost transactions in a failover"
        ),
        Ok(now) => {
            let (now, before) = (now.iter().zip(&before), names.iter());
            let changed: Vec<_> =
                before.zip(now).filter(|(_, (now, before))| now != before).map(|(name, _)| name).collect();
            defect.end(Error::Config(format!(
                "the handlers {changed:?} of {consumer:?} have other numbers in the database than at the start of this worker: \
                 their rows were renamed, moved or deleted meanwhile. Start the worker again, which then uses these numbers. \
                 Messages that it has processed since are new there, so stop all workers of {consumer:?} before such a change"
            )));
        }
        Err(fault) => {
            tracing::warn!(consumer, error = %fault, "missing handlers were not registered; it is retried later")
        }
    }
}

/// Makes the row and the lanes of the outbox again if they are not in the database any more. The ids of messages depend on
/// the row, so the worker ends if it is another one.
async fn check_outbox<S: Store>(pipeline: &Pipeline<S>) {
    let Some(gate) = &pipeline.outbox else { return };
    let consumer = &pipeline.consumer;
    match pipeline.store.register_outbox(consumer).await {
        Ok(now) if now == gate.id => {}
        Ok(_) => pipeline.defect.end(Error::Config(format!(
            "the outbox {consumer:?} is another one in the database than at the start of this worker: the database was restored \
             from a backup that is older than the outbox, or its row was renamed or deleted. Start the worker again, and the \
             relay with it"
        ))),
        Err(error) => tracing::debug!(consumer, %error, "the outbox was not looked for; it is retried later"),
    }
}

async fn remind<S: Store>(pipeline: &Pipeline<S>) {
    let Pipeline { consumer, store, routes, .. } = pipeline;
    if let Ok(mut waiting) = store.waiting(consumer).await {
        let names: Vec<&str> = routes.routes.iter().map(|route| route.handler.name()).collect();
        waiting.iter_mut().for_each(|rows| as_ours(&mut rows.handler, &rows.formerly, &names));
        Unregistered { consumer, names: &names }.remind(&waiting, |handler| store.cures(consumer, handler, ""));
    }
}
