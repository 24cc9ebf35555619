//! The unreadable messages that a subscription begins with.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::lease::Lease;
use crate::leases::Leases;

/// The leases of unreadable messages. Nothing is pulled until they are settled, because a pull that brings one of them
/// again ends the connection.
#[derive(Default)]
pub(crate) struct First {
    leases: Vec<Arc<Lease>>,
    /// How many are unsettled. Shared with the source, which has room for nothing else meanwhile.
    left: Arc<AtomicUsize>,
}

impl First {
    pub(crate) fn new(leases: Vec<Arc<Lease>>) -> Self {
        Self { left: Arc::new(AtomicUsize::new(leases.len())), leases }
    }

    /// The number of unsettled ones, which follows [`are_settled`](Self::are_settled).
    pub(crate) fn count(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.left)
    }

    /// Returns whether none is unsettled any more.
    pub(crate) fn are_settled(&mut self, leases: &Leases) -> bool {
        self.leases.retain(|lease| leases.has(lease));
        self.left.store(self.leases.len(), Relaxed);
        self.leases.is_empty()
    }
}
