//! Whether a worker drains.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tokio_util::sync::CancellationToken;

/// Whether a worker drains: deliveries that are not running are released. Each delivery asks, and the token alone would
/// take a lock for each answer.
#[derive(Default)]
pub(crate) struct Draining {
    begun: AtomicBool,
    token: CancellationToken,
}

impl Draining {
    pub(crate) fn begin(&self) {
        // First, so that those that the token wakes see it. The lock of the token orders the two.
        self.begun.store(true, Relaxed);
        self.token.cancel();
    }

    /// Returns whether the worker drains.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    /// Waits until the worker drains. Cancel safe.
    pub(crate) async fn begun(&self) {
        self.token.cancelled().await;
    }
}
