//! The size of batches, and how many run at once.

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Throttles batches after deadlocks. Batches whose handlers write the same rows in different orders deadlock, and each
/// deadlock costs the database's `deadlock_timeout` of one second. Therefore the first deadlock halves the batch size
/// and lets only one batch run at a time. Successful batches let both recover.
pub(crate) struct BatchThrottle {
    most: usize,
    state: Mutex<State>,
    turns: Semaphore,
}

struct State {
    size: usize,
    /// How many successful batches in a row are still required before several may run at once again.
    one_at_a_time: usize,
}

/// All permits, which a batch takes that runs exclusively. Any other takes one.
const ALL: u32 = 1 << 20;

/// A deadlock costs as much time as about a hundred batches, and running several at once saves about half of a batch's
/// time. After this many batches another try pays off: batches that deadlock each time lose a tenth of their time to it.
const PATIENCE: usize = 1024;

impl BatchThrottle {
    /// Creates a throttle for batches of at most `most` deliveries.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, state: Mutex::new(State { size: most, one_at_a_time: 0 }), turns: Semaphore::new(ALL as usize) }
    }

    /// Returns how many deliveries the next batch may have.
    pub(crate) fn size(&self) -> usize {
        // Lanes without batches ask for each delivery.
        if self.most == 1 { 1 } else { self.state.lock().size }
    }

    /// Waits for the right to run a batch, without a connection. It is never `None`.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        let permits = if self.state.lock().one_at_a_time == 0 { 1 } else { ALL };
        self.turns.acquire_many(permits).await.ok()
    }

    /// Records that a batch lost a deadlock against another one.
    pub(crate) fn shrink(&self) {
        let mut state = self.state.lock();
        state.size = (state.size / 2).max(1);
        state.one_at_a_time = PATIENCE;
        tracing::debug!(size = state.size, "batches deadlocked: one at a time for a while");
    }

    /// Records a successful batch.
    pub(crate) fn grow(&self) {
        let mut state = self.state.lock();
        state.size = (state.size + state.size.div_ceil(8)).min(self.most);
        state.one_at_a_time = state.one_at_a_time.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_exclusive(throttle: &BatchThrottle) -> bool {
        throttle.turn().await.is_some_and(|turn| turn.num_permits() == ALL as usize)
    }

    #[tokio::test]
    async fn a_deadlock_halves_the_batches_and_lets_one_run_at_a_time_until_it_was_quiet_for_long() {
        let throttle = BatchThrottle::new(100);
        assert!(!is_exclusive(&throttle).await);
        throttle.shrink();
        assert_eq!(throttle.size(), 50);
        assert!(is_exclusive(&throttle).await);
        for _ in 0..PATIENCE {
            assert!(is_exclusive(&throttle).await);
            throttle.grow();
        }
        assert_eq!(throttle.size(), 100);
        assert!(!is_exclusive(&throttle).await);
    }

    #[test]
    fn a_batch_never_shrinks_to_nothing() {
        let throttle = BatchThrottle::new(3);
        (0..10).for_each(|_| throttle.shrink());
        assert_eq!(throttle.size(), 1);
    }
}
