//! Watches the outbox to which the handlers of a worker stage messages, so that nothing piles up unseen.
//!
//! If it is full, consumption pauses, and no handler fails: failures would use up attempts, and make dead letters of messages
//! that have done nothing wrong.

use std::time::Duration;

use tokio::time::Instant;

use crate::Store;
use crate::outbox::Unread;
use crate::runtime::{OutboxGate, Pipeline, Settings, jittered, within};
use crate::telemetry::{OUTBOX_COUNTED, OutboxGauges};

/// A relay that runs has shown it since, with the lease that it has by default.
const SHOWN: Duration = Duration::from_secs(10);

/// How long counting may take. Under an old snapshot it visits all messages that were published meanwhile.
const COUNT: Duration = Duration::from_secs(30);

/// After so many counts in a row that failed, consumption goes on: nobody knows whether the outbox is still full.
const BLIND: u32 = 3;

/// Watches the outbox, until the future is dropped: whether a relay of it is alive, and whether its backlog is longer
/// than the user permits.
pub(super) async fn watch<S: Store>(pipeline: &Pipeline<S>) {
    let Some(gate) = &pipeline.outbox else { return };
    let Settings { backlog, relay_patience: patience, .. } = pipeline.settings;
    let consumer = &pipeline.consumer;
    let gauges = OutboxGauges::new(consumer);
    let limit = backlog.unwrap_or(0).saturating_add(1).max(OUTBOX_COUNTED);
    let (mut failures, mut unread, mut relayed) = (0_u32, Unread::default(), Instant::now());
    loop {
        unread.look(&pipeline.store, Some(consumer)).await;
        let began = Instant::now();
        match within(COUNT, pipeline.store.outbox_stats(gate.id, limit)).await {
            Ok(stats) => {
                failures = 0;
                gauges.set(&stats);
                if stats.waiting > 0 {
                    gate.publishes();
                }
                gate.set_full(backlog.is_some_and(|backlog| stats.waiting > backlog));
                if stats.relay_seen.is_some_and(|seen| seen < SHOWN) {
                    relayed = Instant::now();
                }
            }
            Err(error) => {
                // Without an answer, relays could not renew their lease either.
                relayed = Instant::now();
                failures = failures.saturating_add(1);
                tracing::warn!(consumer, error, "the messages of the outbox could not be counted");
                if failures >= BLIND && gate.set_full(false) {
                    tracing::error!(
                        consumer,
                        failures,
                        "consumption goes on although the outbox may still be full, because its messages could not be \
                         counted: end old transactions of the database, such as that of a dump, or lower `.backlog(..)`"
                    );
                }
            }
        }
        tell(pipeline, gate, gate.needs_relay() && relayed.elapsed() > patience);
        // However many messages wait, most of the time is not spent on counting them, unless a worker waits for it.
        let factor = if gate.is_full() { 1 } else { 10 };
        tokio::time::sleep(jittered((patience / 12).max(factor * began.elapsed()))).await;
        pipeline.outage.over().await;
    }
}

/// Reports whether a relay is missing, and whether the outbox is full.
fn tell<S: Store>(pipeline: &Pipeline<S>, gate: &OutboxGate, missing: bool) {
    let (consumer, told) = (&pipeline.consumer, pipeline.health.unrelayed());
    let unrelayed = missing.then(|| {
        format!(
            "no relay of the outbox {consumer:?} is alive, so nothing that handlers publish leaves: run \
             `Relay::new({consumer:?}, ..)`"
        )
    });
    let full = pipeline.settings.backlog.filter(|_| gate.is_full()).map(|backlog| {
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
