//! How large batches are, and how many run at once.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What deadlocks between batches change. Batches whose handlers write the same rows in different orders deadlock, and
/// each deadlock costs the database's `deadlock_timeout` of a second: so the first one halves the batches and lets only
/// one of them run at a time, and quiet lets them grow back, more slowly each time, until it has been quiet for long.
pub(crate) struct BatchThrottle {
    most: usize,
    size: AtomicUsize,
    /// How many good batches in a row are still wanted before several may run at once again.
    narrow: AtomicUsize,
    /// How many will be wanted after the next deadlock.
    patience: AtomicUsize,
    /// How many good batches there were since several may run at once again, or since the patience became less.
    quiet: AtomicUsize,
    turns: RwLock<()>,
}

/// The right to run one batch.
pub(crate) enum Turn<'a> {
    /// Beside others.
    Shared { _guard: RwLockReadGuard<'a, ()> },
    /// Alone among the worker's batches.
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

/// A deadlock costs as much time as a hundred batches or so, and to run several at once saves about half of a batch's
/// time: this many make it worth another try.
const FIRST_PATIENCE: usize = 1024;
const LONGEST_PATIENCE: usize = 65_536;

impl BatchThrottle {
    /// Batches of at most so many.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            size: AtomicUsize::new(most),
            narrow: AtomicUsize::new(0),
            patience: AtomicUsize::new(FIRST_PATIENCE),
            quiet: AtomicUsize::new(0),
            turns: RwLock::new(()),
        }
    }

    /// How many deliveries the next batch may have.
    pub(crate) fn size(&self) -> usize {
        self.size.load(Relaxed)
    }

    /// Waits for the right to run a batch, without a connection.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        if self.narrow.load(Relaxed) == 0 {
            Turn::Shared { _guard: self.turns.read().await }
        } else {
            Turn::Alone { _guard: self.turns.write().await }
        }
    }

    /// A batch lost against another one.
    pub(crate) fn shrink(&self) {
        let halved = |size: usize| Some((size / 2).max(1));
        let _ = self.size.fetch_update(Relaxed, Relaxed, halved);
        let doubled = |patience: usize| Some((patience * 2).min(LONGEST_PATIENCE));
        let patience = self.patience.fetch_update(Relaxed, Relaxed, doubled).unwrap_or(FIRST_PATIENCE);
        self.narrow.store(patience, Relaxed);
        self.quiet.store(0, Relaxed);
        tracing::debug!(size = self.size(), patience, "batches deadlocked: one at a time for a while");
    }

    /// A batch went well.
    pub(crate) fn grow(&self) {
        let more = |size: usize| (size < self.most).then(|| (size + size.div_ceil(8)).min(self.most));
        let _ = self.size.fetch_update(Relaxed, Relaxed, more);
        let fewer = |narrow: usize| narrow.checked_sub(1);
        if self.narrow.fetch_update(Relaxed, Relaxed, fewer).is_err() {
            self.forget();
        }
    }

    /// As many good batches beside each other as the next deadlock would cost one by one halve that cost: what once
    /// deadlocked need not do so for ever.
    fn forget(&self) {
        let patience = self.patience.load(Relaxed);
        if patience > FIRST_PATIENCE && self.quiet.fetch_add(1, Relaxed) + 1 >= patience {
            self.quiet.store(0, Relaxed);
            self.patience.store((patience / 2).max(FIRST_PATIENCE), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_deadlock_halves_the_batches_and_lets_one_run_at_a_time_until_it_was_quiet_for_long() {
        let pace = BatchThrottle::new(100);
        assert!(matches!(pace.turn().await, Turn::Shared { .. }));
        pace.shrink();
        assert_eq!(pace.size(), 50);
        assert!(matches!(pace.turn().await, Turn::Alone { .. }));
        for _ in 0..FIRST_PATIENCE {
            assert!(matches!(pace.turn().await, Turn::Alone { .. }));
            pace.grow();
        }
        assert_eq!(pace.size(), 100);
        assert!(matches!(pace.turn().await, Turn::Shared { .. }));
        pace.shrink();
        assert_eq!(pace.narrow.load(Relaxed), 2 * FIRST_PATIENCE, "the next quiet has to be longer");
    }

    #[test]
    fn long_quiet_forgets_old_deadlocks() {
        let pace = BatchThrottle::new(100);
        (0..4).for_each(|_| pace.shrink());
        let patience = pace.patience.load(Relaxed);
        assert_eq!(patience, 16 * FIRST_PATIENCE);
        // One by one first, then beside each other: a half of it is forgotten each time.
        let (one_by_one, beside) = (patience / 2, 16 + 8 + 4 + 2);
        (0..one_by_one + beside * FIRST_PATIENCE).for_each(|_| pace.grow());
        pace.shrink();
        assert_eq!(pace.narrow.load(Relaxed), FIRST_PATIENCE, "as after the first one");
    }

    #[test]
    fn a_batch_never_shrinks_to_nothing() {
        let pace = BatchThrottle::new(3);
        (0..10).for_each(|_| pace.shrink());
        assert_eq!(pace.size(), 1);
    }
}
