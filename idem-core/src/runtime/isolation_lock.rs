//! The two locks of a process that isolate orphaned rows from other work, and how long orphaned rows may keep it from starting.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::Instant;

use crate::store::RowKind;

static PROCESS: LazyLock<IsolationLock> = LazyLock::new(IsolationLock::new);

/// Isolates an orphaned row, a message that may have crashed a process, from other work in its process, across all workers,
/// so that no other message is blamed. [`RowKind`] defines from which work.
///
/// All workers of a process share one lock. Tests that simulate several processes in one give each its own lock.
// Two locks, both of which prefer those that want them exclusively. Work holds one of them, shared, and never waits for
// the other; an orphaned row takes that of the rows first. So nothing waits in a circle.
#[derive(Debug, Clone)]
pub struct IsolationLock {
    /// Shared by runs from the inbox.
    rows: Arc<RwLock<()>>,
    /// Shared by direct deliveries and external calls.
    direct: Arc<RwLock<()>>,
    /// How often an orphaned row has had exclusive use of the process.
    exclusive: Arc<AtomicUsize>,
    /// How long orphaned rows may wait.
    patience: Arc<Mutex<Patience>>,
}

/// Held by a direct delivery, or by an external call.
pub(crate) type Direct = OwnedRwLockReadGuard<()>;

/// Held by rows of the inbox that were fetched together.
pub(crate) type InboxPermit = Arc<OwnedRwLockReadGuard<()>>;

/// While this exists, no work that must be isolated from an orphaned row runs, holds a row, or starts.
pub(crate) type Isolated = (OwnedRwLockWriteGuard<()>, Option<OwnedRwLockWriteGuard<()>>);

impl IsolationLock {
    /// Creates a separate lock, for a worker that simulates a separate process.
    #[allow(clippy::new_without_default, reason = "the default lock is that of the process, not a new one")]
    pub fn new() -> Self {
        Self { rows: Arc::default(), direct: Arc::default(), exclusive: Arc::default(), patience: Arc::default() }
    }

    /// Returns the lock of this process.
    pub fn process() -> Self {
        PROCESS.clone()
    }

    /// Returns how often an orphaned row has had exclusive use of the process.
    pub fn times_exclusive(&self) -> usize {
        self.exclusive.load(Relaxed)
    }

    /// Waits until a direct delivery or an external call may run: while an orphaned row has, or waits for, exclusive use of the
    /// process, none may.
    pub(crate) async fn direct(&self) -> Direct {
        // Each delivery comes here, and almost never waits.
        match self.direct.clone().try_read_owned() {
            Ok(free) => free,
            Err(_) => self.direct.clone().read_owned().await,
        }
    }

    /// Waits until rows of the inbox may run: while an orphaned row runs or waits to run, none may.
    pub(crate) async fn inbox(&self) -> InboxPermit {
        Arc::new(self.rows.clone().read_owned().await)
    }

    /// Returns whether an orphaned row waits, or runs, beside which no other row may run.
    pub fn keeps_out_rows(&self) -> bool {
        self.rows.try_read().is_err()
    }

    /// Returns whether an orphaned row waits, or runs, beside which no direct delivery may run.
    pub fn keeps_out_direct(&self) -> bool {
        self.direct.try_read().is_err()
    }

    /// Waits until all work that must not run concurrently with an orphaned row of this kind has ended; none of it starts
    /// meanwhile. Cancel safe.
    pub(crate) async fn isolate(&self, kind: RowKind) -> Isolated {
        let rows = self.rows.clone().write_owned().await;
        if kind != RowKind::Alone {
            return (rows, None);
        }
        let direct = self.direct.clone().write_owned().await;
        self.exclusive.fetch_add(1, Relaxed);
        (rows, Some(direct))
    }

    /// Returns whether orphaned rows have kept out other work for so long that it comes first, if there is any that one of
    /// them would keep out again: some rows are `due`, or it runs.
    pub(crate) fn is_early(&self, kind: RowKind, due: bool) -> bool {
        let (rows, direct) = (&self.rows, &self.direct);
        let runs = || rows.try_write().is_err() || kind == RowKind::Alone && direct.try_write().is_err();
        let is_open = self.patience.lock().open_until.is_some_and(|until| Instant::now() < until);
        is_open && (due || runs())
    }

    /// Returns how long an orphaned row may wait for its isolation; at least for `least`.
    pub(crate) fn limit(&self, least: Duration) -> Duration {
        self.patience.lock().limit.max(least)
    }

    /// Records that an orphaned row has waited for this long in vain.
    pub(crate) fn gave_up(&self, waited: Duration) {
        self.ran(waited, waited, Duration::ZERO);
    }

    /// Records that orphaned rows have run, after they had waited for this long, and that other work was kept out for that long.
    /// If that is more than `least`, the other work comes first for as long.
    pub(crate) fn ran(&self, waited: Duration, closed: Duration, least: Duration) {
        let open = if closed > least { closed } else { Duration::ZERO };
        let open_until = Instant::now().checked_add(open);
        *self.patience.lock() = Patience { limit: waited.saturating_mul(2), open_until };
    }
}

/// The times for which orphaned rows close the inbox of a process. An orphaned row waits until all running rows
/// have ended, and no row starts meanwhile. It gives up after a while, and tries again later: one row that runs for an
/// hour would otherwise stop all others for an hour.
///
/// After an orphaned row that gave up, and after one that closed the inbox for long, the inbox is open for as long as it was
/// closed, so that the other rows have at least half of the time. Each wait may take twice as long as the last one that
/// failed. So one of them is longer than the longest handler, and the orphaned row gets its turn in the end.
#[derive(Debug, Default)]
struct Patience {
    /// How long the next orphaned row may wait, if that is longer than the least time.
    limit: Duration,
    /// No orphaned row may be waited for before this.
    open_until: Option<Instant>,
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    async fn waits(future: impl Future) -> bool {
        tokio::time::timeout(Duration::from_millis(20), future).await.is_err()
    }

    #[tokio::test]
    async fn an_orphan_with_one_start_keeps_out_rows_and_lets_direct_deliveries_go_on() {
        let lock = IsolationLock::new();
        let direct = lock.direct().await;
        let isolated = lock.isolate(RowKind::Orphan).await;
        assert!(!waits(lock.direct()).await && !lock.keeps_out_direct());
        assert!(waits(lock.inbox()).await && lock.keeps_out_rows());
        assert!(waits(lock.isolate(RowKind::Orphan)).await, "one orphaned row per process");
        drop(isolated);
        assert!(!waits(lock.inbox()).await);
        assert_eq!(lock.times_exclusive(), 0);
        drop(direct);
    }

    #[tokio::test]
    async fn an_orphan_with_two_starts_waits_for_all_and_keeps_out_all() {
        let lock = IsolationLock::new();
        for is_direct in [true, false] {
            let running = if is_direct { (Some(lock.direct().await), None) } else { (None, Some(lock.inbox().await)) };
            assert!(waits(lock.isolate(RowKind::Alone)).await);
            assert!(!lock.keeps_out_direct() && !lock.keeps_out_rows(), "who gives up no longer waits");
            drop(running);
        }
        let isolated = lock.isolate(RowKind::Alone).await;
        assert!(waits(lock.direct()).await);
        assert!(waits(lock.inbox()).await);
        drop(isolated);
        assert!(!waits(lock.direct()).await);
        assert_eq!(lock.times_exclusive(), 1);
    }

    #[tokio::test]
    async fn an_orphan_that_waits_stops_new_starts() {
        let lock = IsolationLock::new();
        let running = lock.direct().await;
        let mut isolate = Box::pin(lock.isolate(RowKind::Alone));
        assert!(waits(&mut isolate).await);
        assert!(lock.keeps_out_direct() && lock.keeps_out_rows());
        assert!(waits(lock.inbox()).await);
        assert!(waits(lock.direct()).await);
        drop(running);
        assert!(!waits(isolate).await);
    }

    #[tokio::test]
    async fn two_orphans_with_two_starts_run_one_after_the_other() {
        let lock = IsolationLock::new();
        let running = lock.direct().await;
        let mut first = Box::pin(lock.isolate(RowKind::Alone));
        let mut second = Box::pin(lock.isolate(RowKind::Alone));
        assert!(waits(&mut first).await && waits(&mut second).await);
        drop(running);
        let isolated = first.await;
        assert!(waits(&mut second).await);
        drop(isolated);
        assert!(!waits(second).await);
    }

    const LEAST: Duration = Duration::from_secs(10);

    fn is_open(lock: &IsolationLock) -> bool {
        lock.is_early(RowKind::Orphan, true)
    }

    /// The worst case: whenever the inbox is open, rows start that run for this long.
    #[tokio::test(start_paused = true)]
    async fn an_orphan_gets_its_turn_and_the_others_half_of_the_time() {
        let (handler, begun) = (Duration::from_secs(600), Instant::now());
        let (lock, mut closed) = (IsolationLock::new(), Duration::ZERO);
        while lock.limit(LEAST) < handler {
            assert!(!is_open(&lock));
            let limit = lock.limit(LEAST);
            closed += limit;
            advance(limit).await;
            lock.gave_up(limit);
            advance(limit / 2).await;
            assert!(is_open(&lock));
            advance(limit - limit / 2).await;
        }
        assert!(!is_open(&lock));
        assert_eq!(closed * 2, begun.elapsed());
        assert!(closed < 2 * handler);
        // The next one waits no longer than that, and not at once.
        let run = Duration::from_secs(300);
        lock.ran(handler, handler + run, LEAST);
        advance(handler).await;
        assert!(is_open(&lock));
        advance(run).await;
        assert!(!is_open(&lock));
        assert_eq!(lock.limit(LEAST), 2 * handler);
    }

    #[tokio::test(start_paused = true)]
    async fn short_orphans_follow_one_another() {
        let lock = IsolationLock::new();
        lock.gave_up(LEAST);
        lock.ran(Duration::ZERO, Duration::from_secs(1), LEAST);
        assert!(!is_open(&lock));
        assert_eq!(lock.limit(LEAST), LEAST);
    }
}
