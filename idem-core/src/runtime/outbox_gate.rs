//! The outbox of a worker, and whether it may be staged to.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::Store;
use crate::store::OutboxId;

use super::pipeline::Pipeline;

/// The outbox of a worker whose handlers stage messages.
#[derive(Debug)]
pub(crate) struct OutboxGate {
    pub(crate) id: OutboxId,
    /// Whether more messages wait to be published than the user permits.
    full: watch::Sender<bool>,
    /// Whether a local message was staged.
    hands_over: AtomicBool,
    /// Whether a message that a relay has to publish was staged, or waits.
    publishes: AtomicBool,
}

impl OutboxGate {
    pub(crate) fn new(id: OutboxId) -> Self {
        Self { id, full: watch::Sender::default(), hands_over: AtomicBool::default(), publishes: AtomicBool::default() }
    }

    /// Records that a local message was staged.
    pub(crate) fn hands_over(&self) {
        self.hands_over.store(true, Ordering::Relaxed);
    }

    /// Records that a message was staged, or waits, that a relay has to publish.
    pub(crate) fn publishes(&self) {
        self.publishes.store(true, Ordering::Relaxed);
    }

    /// Returns whether its consumer may need a relay. Without any message yet, it is to be told in time that none runs.
    pub(crate) fn needs_relay(&self) -> bool {
        self.publishes.load(Ordering::Relaxed) || !self.hands_over.load(Ordering::Relaxed)
    }

    /// Returns whether more messages wait to be published than the user permits.
    pub(crate) fn is_full(&self) -> bool {
        *self.full.borrow()
    }

    /// Returns whether it was full before.
    pub(crate) fn set_full(&self, full: bool) -> bool {
        self.full.send_replace(full)
    }
}

impl<S: Store> Pipeline<S> {
    /// Returns whether more messages wait to be published than the user permits.
    pub(crate) fn is_outbox_full(&self) -> bool {
        self.outbox.as_ref().is_some_and(OutboxGate::is_full)
    }

    /// Waits until it is so, or until it is not. Cancel safe.
    pub(crate) async fn outbox_full(&self, full: bool) {
        match &self.outbox {
            // The sender lives in `self`, so waiting cannot fail.
            Some(gate) if full != gate.is_full() => drop(gate.full.subscribe().wait_for(|now| *now == full).await),
            None if full => std::future::pending().await,
            _ => {}
        }
    }
}
