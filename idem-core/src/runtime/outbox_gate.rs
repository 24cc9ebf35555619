//! The outbox of a worker, and whether it may be staged to.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::store::OutboxId;

/// The outbox of a worker whose handlers stage messages.
#[derive(Debug)]
pub(crate) struct OutboxGate {
    pub(crate) id: OutboxId,
    /// Whether more messages wait to be published than the user permits.
    full: AtomicBool,
}

impl OutboxGate {
    pub(crate) fn new(id: OutboxId) -> Self {
        Self { id, full: AtomicBool::new(false) }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Returns whether it was full before.
    pub(crate) fn set_full(&self, full: bool) -> bool {
        self.full.swap(full, Relaxed)
    }
}
