//! How many deliveries the database refuses.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many deliveries are refused, and how many there may be: as many as may be unsettled. Then no further one can be
/// taken.
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

    /// Answers whether it is full from now on.
    pub(super) fn add(&self) -> bool {
        let full = self.count.fetch_add(1, Relaxed) + 1 == self.most;
        if full {
            tracing::error!(
                held = self.most,
                "the database refuses every message that is held, and no further one can be taken: look at constraints and \
                 triggers on idem's tables"
            );
        }
        full
    }

    /// Answers whether it was full until now.
    pub(super) fn remove(&self) -> bool {
        self.count.fetch_sub(1, Relaxed) == self.most
    }
}
