//! The outbox of a worker: whether a relay publishes it, and whether more may be staged, so that nothing piles up unseen.
//!
//! If it is full, consumption pauses, and no handler fails: failures would use up attempts, and make dead letters of messages
//! that have done nothing wrong.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use crate::outbox::Unread;
use crate::telemetry::{self, OUTBOX_COUNTED};
use crate::{Engine, Store};

use super::outage::within;
use super::persist::jittered;
use super::pipeline::Pipeline;
use super::settings::Settings;

/// A relay that runs has shown it since, with the lease that it has by default.
const SHOWN: Duration = Duration::from_secs(10);

/// How long counting may take. Under an old snapshot it visits all messages that were published meanwhile.
const COUNT: Duration = Duration::from_secs(30);

/// After so many counts in a row that failed, consumption goes on: nobody knows whether the outbox is still full.
const BLIND: u32 = 3;

impl<S: Engine> Pipeline<S> {
    /// Returns whether more messages wait to be published than the user permits.
    pub(crate) fn is_outbox_full(&self) -> bool {
        self.outbox.is_some() && *self.full_outbox.borrow()
    }

    /// Waits until the outbox is full, or until it is not. Cancel safe.
    pub(crate) async fn outbox_full(&self, full: bool) {
        // Looked at first, because this is called for each delivery.
        if full != self.is_outbox_full() {
            // The sender lives in `self`, so waiting cannot fail.
            let _ = self.full_outbox.subscribe().wait_for(|now| *now == full).await;
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Watches the outbox, until the future is dropped: whether a relay of it is alive, and whether its backlog is longer
    /// than the user permits.
    pub(crate) async fn watch_outbox(&self) {
        let Some(outbox) = self.outbox else { return };
        let Settings { backlog, relay_patience: patience, .. } = self.settings;
        let consumer = &self.consumer;
        let limit = backlog.unwrap_or(0).saturating_add(1).max(OUTBOX_COUNTED);
        let (mut failures, mut unread, mut relayed, mut waits) = (0_u32, Unread::default(), Instant::now(), false);
        loop {
            unread.check(&self.store, Some(consumer)).await;
            let began = Instant::now();
            match within(COUNT, self.store.outbox_stats(outbox, limit)).await {
                Ok(stats) => {
                    failures = 0;
                    telemetry::outbox(consumer, &stats);
                    waits = stats.waiting > 0;
                    self.full_outbox.send_replace(backlog.is_some_and(|backlog| stats.waiting > backlog));
                    if stats.relay_seen.is_some_and(|seen| seen < SHOWN) {
                        relayed = Instant::now();
                    }
                }
                Err(error) => {
                    // Without an answer, relays could not renew their lease either.
                    relayed = Instant::now();
                    failures = failures.saturating_add(1);
                    tracing::warn!(consumer, error, "the messages of the outbox could not be counted");
                    if failures >= BLIND && self.full_outbox.send_replace(false) {
                        tracing::error!(
                            consumer,
                            failures,
                            "consumption goes on although the outbox may still be full, because its messages could not be \
                             counted: end old transactions of the database, such as that of a dump, or lower `.backlog(..)`"
                        );
                    }
                }
            }
            // A worker that has only handed local messages over needs no relay. Without any message yet, it is to be logged in
            // time that no relay runs.
            let needs_relay = waits || !self.hands_over.load(Relaxed);
            self.log_outbox(needs_relay && relayed.elapsed() > patience);
            // However many messages wait, most of the time is not spent on counting them, unless a worker waits for it.
            let factor = if self.is_outbox_full() { 1 } else { 10 };
            tokio::time::sleep(jittered((patience / 12).max(factor * began.elapsed()))).await;
            self.outage.over().await;
        }
    }

    /// Reports whether a relay is missing, and whether the outbox is full.
    fn log_outbox(&self, missing: bool) {
        let (consumer, logged) = (&self.consumer, self.health.unrelayed());
        let unrelayed = missing.then(|| {
            format!(
                "no relay of the outbox {consumer:?} is alive, so nothing that handlers publish leaves: run \
                 `Relay::new({consumer:?}, ..)`"
            )
        });
        let full = self.settings.backlog.filter(|_| self.is_outbox_full()).map(|backlog| {
            format!(
                "consumption pauses, because more than {backlog} messages of the outbox {consumer:?} wait to be published"
            )
        });
        self.member.report_outbox(full.clone());
        let why: Vec<String> = unrelayed.into_iter().chain(full).collect();
        let why = (!why.is_empty()).then(|| why.join("; "));
        match &why {
            Some(now) if logged.as_ref() != Some(now) => {
                tracing::error!(consumer, show = %self.store.facts().command(&["doctor"], &[]), "{now}")
            }
            None if logged.is_some() => tracing::info!(consumer, "messages of the outbox are published again"),
            _ => {}
        }
        self.health.set_unrelayed(why);
    }
}
