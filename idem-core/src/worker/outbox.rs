//! Watches the outbox to which the handlers of a worker stage messages, so that nothing piles up unseen.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::Store;
use crate::runtime::{Pipeline, jittered};

/// How long counting may take.
const COUNT: Duration = Duration::from_secs(5);

/// Watches the outbox, until the future is dropped: whether a relay of it is alive, and whether its backlog is longer
/// than the user permits.
pub(super) async fn watch<S: Store>(pipeline: &Pipeline<S>) {
    let Some(gate) = &pipeline.outbox else { return };
    let (settings, mut relayed) = (&pipeline.settings, Instant::now());
    loop {
        let limit = settings.backlog.map_or(1, |backlog| backlog.saturating_add(1));
        if let Ok(Ok(stats)) = timeout(COUNT, pipeline.store.outbox_stats(gate.id, limit)).await {
            if stats.relays > 0 {
                relayed = Instant::now();
            }
            tell_of_relays(pipeline, relayed.elapsed() > settings.relay_patience);
            let full = settings.backlog.is_some_and(|backlog| stats.waiting > backlog);
            if full && !gate.set_full(true) {
                let (consumer, backlog) = (&pipeline.consumer, settings.backlog);
                tracing::warn!(consumer, backlog, "the outbox is full: handlers that stage messages fail");
            } else if !full && gate.set_full(false) {
                tracing::info!(consumer = pipeline.consumer, "handlers can stage messages again");
            }
        }
        tokio::time::sleep(jittered(settings.relay_patience / 12)).await;
        pipeline.outage.over().await;
    }
}

/// Reports whether a relay is missing.
fn tell_of_relays<S: Store>(pipeline: &Pipeline<S>, missing: bool) {
    let consumer = &pipeline.consumer;
    let was_missing = pipeline.health.unrelayed().is_some();
    if missing && !was_missing {
        let why = format!(
            "no relay of the outbox {consumer:?} is alive, so nothing that handlers stage is published: run \
             `Relay::new({consumer:?}, ..)`"
        );
        tracing::error!(consumer, "{why}");
        pipeline.health.set_unrelayed(Some(why));
    } else if !missing && was_missing {
        tracing::info!(consumer, "a relay of the outbox is alive again");
        pipeline.health.set_unrelayed(None);
    }
}
