//! The number of deliveries that the database refuses.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of refused deliveries, and its maximum, which is the number that may be unsettled. At the maximum no
/// further delivery can be taken.
pub(super) struct Count {
    count: AtomicUsize,
    most: usize,
}

impl Count {
    pub(super) fn of(most: usize) -> Self {
        Self { count: AtomicUsize::new(0), most }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count.load(Relaxed) >= self.most
    }

    /// Adds one. Returns whether the maximum is now reached.
    pub(super) fn add(&self) -> bool {
        let full = self.count.fetch_add(1, Relaxed) + 1 == self.most;
        if full {
            tracing::error!(
                held = self.most,
                "the database refuses every held message, and no more messages can be received: check the \
                 constraints and triggers on idem's tables"
            );
        }
        full
    }

    /// Removes one. Returns whether the maximum was reached until now.
    pub(super) fn remove(&self) -> bool {
        self.count.fetch_sub(1, Relaxed) == self.most
    }
}
