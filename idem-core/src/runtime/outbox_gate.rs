//! The outbox of a worker, and whether it may be staged to.

use tokio::sync::watch;

use crate::store::OutboxId;

/// The outbox of a worker whose handlers stage messages.
#[derive(Debug)]
pub(crate) struct OutboxGate {
    pub(crate) id: OutboxId,
    /// Whether more messages wait to be published than the user permits.
    full: watch::Sender<bool>,
}

impl OutboxGate {
    pub(crate) fn new(id: OutboxId) -> Self {
        Self { id, full: watch::Sender::new(false) }
    }

    pub(crate) fn is_full(&self) -> bool {
        *self.full.borrow()
    }

    /// Returns whether it was full before.
    pub(crate) fn set_full(&self, full: bool) -> bool {
        self.full.send_replace(full)
    }

    /// Waits until it is full, or until it is not. Cancel safe.
    pub(crate) async fn becomes(&self, full: bool) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.full.subscribe().wait_for(|now| *now == full).await;
    }
}
