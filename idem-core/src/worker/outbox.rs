//! Watches the outbox to which the handlers of a worker stage messages, so that nothing piles up unseen.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::Store;
use crate::runtime::{OutboxGate, Pipeline, jittered};
use crate::store::OutboxStats;
use crate::telemetry::OutboxGauges;

/// How long counting may take.
const COUNT: Duration = Duration::from_secs(5);

/// The number up to which messages are counted for the gauges.
const COUNTED: u64 = 10_000;

/// Watches the outbox, until the future is dropped: whether a relay of it is alive, and whether its backlog is longer
/// than the user permits.
pub(super) async fn watch<S: Store>(pipeline: &Pipeline<S>) {
    let Some(gate) = &pipeline.outbox else { return };
    let (settings, gauges) = (&pipeline.settings, OutboxGauges::new(&pipeline.consumer));
    let limit = settings.backlog.unwrap_or(0).saturating_add(1).max(COUNTED);
    let mut relayed = Instant::now();
    loop {
        let began = Instant::now();
        match timeout(COUNT, pipeline.store.outbox_stats(gate.id, limit)).await {
            Ok(Ok(stats)) => {
                gauges.set(&stats);
                if stats.relays > 0 {
                    relayed = Instant::now();
                }
                tell(pipeline, gate, &stats, relayed.elapsed() > settings.relay_patience);
            }
            failed => {
                // Relays could not renew their leases either.
                relayed = Instant::now();
                let error = failed.map_or("it takes too long".to_owned(), |answer| match answer {
                    Ok(_) => String::new(),
                    Err(fault) => crate::error::text(&fault),
                });
                tracing::warn!(consumer = pipeline.consumer, error, "the messages of the outbox could not be counted");
            }
        }
        // However many messages wait, most of the time is not spent on counting them.
        tokio::time::sleep(jittered(settings.relay_patience / 12).max(10 * began.elapsed())).await;
        pipeline.outage.over().await;
    }
}

/// Reports whether a relay is missing, and whether the outbox is full.
fn tell<S: Store>(pipeline: &Pipeline<S>, gate: &OutboxGate, stats: &OutboxStats, missing: bool) {
    let (consumer, told) = (&pipeline.consumer, pipeline.health.unrelayed());
    let backlog = pipeline.settings.backlog.filter(|backlog| stats.waiting > *backlog);
    gate.set_full(backlog.is_some());
    let unrelayed = missing.then(|| {
        format!(
            "no relay of the outbox {consumer:?} is alive, so nothing that handlers stage is published: run \
             `Relay::new({consumer:?}, ..)`"
        )
    });
    let full = backlog.map(|backlog| {
        format!(
            "consumption pauses, because more than {backlog} messages of the outbox {consumer:?} wait to be published"
        )
    });
    let why: Vec<String> = unrelayed.into_iter().chain(full).collect();
    let why = (!why.is_empty()).then(|| why.join("; "));
    match &why {
        Some(now) if told.as_ref() != Some(now) => tracing::error!(consumer, "{now}"),
        None if told.is_some() => tracing::info!(consumer, "messages of the outbox are published again"),
        _ => {}
    }
    pipeline.health.set_unrelayed(why);
}
