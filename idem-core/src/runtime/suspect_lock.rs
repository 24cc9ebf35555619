//! The lock of a process that isolates suspects from other work.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::store::SuspectIsolation;

use super::patience::Patience;

static PROCESS: LazyLock<SuspectLock> = LazyLock::new(SuspectLock::new);

/// Isolates a suspect, a message that may have crashed a process, from other work in its process, across all workers,
/// so that no other message is blamed. [`SuspectIsolation`] defines from which work.
///
/// All workers of a process share one lock. Tests that simulate several processes in one give each its own lock.
#[derive(Debug, Clone)]
pub struct SuspectLock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Held by each suspect from its reservation to its outcome, or to the return of its handler in an outage: one suspect at
    /// a time per process.
    turn: Arc<Mutex<()>>,
    /// Shared by runs from the inbox.
    inbox: Arc<RwLock<()>>,
    /// Shared by direct deliveries and external calls.
    direct: Arc<RwLock<()>>,
    /// The running work that suspects wait for: the inbox, or everything. At most one suspect waits at a time.
    wanted: AtomicU8,
    /// How often a suspect has had exclusive use of the process.
    exclusive: AtomicUsize,
    /// How long suspects of the first stage close the inbox.
    patience: std::sync::Mutex<Patience>,
}

/// The permit to run a direct delivery, or to make an external call.
pub(crate) type Direct = OwnedRwLockReadGuard<()>;

/// The permit to run rows of the inbox that were taken together.
pub(crate) type InboxPermit = Arc<OwnedRwLockReadGuard<()>>;

/// The right to reserve and to run one suspect.
#[derive(Debug)]
pub(crate) struct Turn {
    lock: SuspectLock,
    _turn: tokio::sync::OwnedMutexGuard<()>,
}

/// While this exists, no work that must be isolated from the suspect runs, holds a row, or starts.
#[derive(Debug)]
pub(crate) struct Isolated {
    _inbox: OwnedRwLockWriteGuard<()>,
    _direct: Option<OwnedRwLockWriteGuard<()>>,
}

impl SuspectLock {
    /// Creates a separate lock, for a worker that simulates a separate process.
    #[allow(clippy::new_without_default, reason = "the default lock is that of the process, not a new one")]
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            turn: Arc::default(),
            inbox: Arc::default(),
            direct: Arc::default(),
            wanted: AtomicU8::new(SuspectIsolation::None as u8),
            exclusive: AtomicUsize::new(0),
            patience: std::sync::Mutex::default(),
        }))
    }

    /// Returns the lock of this process.
    pub fn process() -> Self {
        PROCESS.clone()
    }

    /// Returns how often a suspect has had exclusive use of the process.
    pub fn times_exclusive(&self) -> usize {
        self.0.exclusive.load(Relaxed)
    }

    /// Acquires the permit to run a direct delivery, or to make an external call. Waits while a suspect has, or waits for,
    /// exclusive use of the process: the locks are fair, so a waiting suspect stops new starts.
    pub(crate) async fn direct(&self) -> Direct {
        // Each delivery comes here, and almost never waits.
        match self.try_direct() {
            Some(free) => free,
            None => self.0.direct.clone().read_owned().await,
        }
    }

    /// Acquires that permit, unless a suspect has, or waits for, exclusive use of the process: a suspect in the queue of the
    /// lock leaves nothing to acquire.
    pub(crate) fn try_direct(&self) -> Option<Direct> {
        self.0.direct.clone().try_read_owned().ok()
    }

    /// Acquires the permit to run rows of the inbox. Waits while a suspect runs or waits to run.
    pub(crate) async fn inbox(&self) -> InboxPermit {
        Arc::new(self.0.inbox.clone().read_owned().await)
    }

    /// Acquires that permit, unless a suspect runs or waits to run.
    pub(crate) fn try_inbox(&self) -> Option<InboxPermit> {
        self.0.inbox.clone().try_read_owned().ok().map(Arc::new)
    }

    /// Returns the work that a suspect waits for. No more of that work starts.
    pub(crate) fn wanted(&self) -> SuspectIsolation {
        match self.0.wanted.load(Relaxed) {
            0 => SuspectIsolation::None,
            1 => SuspectIsolation::Inbox,
            _ => SuspectIsolation::Process,
        }
    }

    /// Waits for the right to reserve a suspect.
    pub(crate) async fn turn(&self) -> Turn {
        Turn { lock: self.clone(), _turn: self.0.turn.clone().lock_owned().await }
    }
}

impl Turn {
    /// Returns whether suspects have closed the inbox for so long that other rows come first, if there are any: some
    /// are `due`, or run.
    pub(crate) fn is_early(&self, due: bool) -> bool {
        self.patience().is_open(Instant::now()) && (due || self.lock.0.inbox.try_write().is_err())
    }

    /// Returns how long a suspect may wait for its isolation; at least for `least`. `None`: one of the second stage
    /// waits for as long as it takes, since it may end the process of all that starts meanwhile.
    pub(crate) fn limit(&self, isolation: SuspectIsolation, least: Duration) -> Option<Duration> {
        (isolation < SuspectIsolation::Process).then(|| self.patience().limit(least))
    }

    /// Records that a suspect has waited in vain since `began`.
    pub(crate) fn gave_up(&self, began: Instant) {
        let now = Instant::now();
        self.patience().gave_up(now - began, now);
    }

    /// Records that a suspect has run, for which the inbox was closed since `began` and quiet since `quiet`.
    pub(crate) fn ran(&self, began: Instant, quiet: Instant, least: Duration) {
        let now = Instant::now();
        self.patience().ran(quiet - began, now - began, least, now);
    }

    fn patience(&self) -> MutexGuard<'_, Patience> {
        // Two times are consistent at all times.
        self.lock.0.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all work that must not run beside the suspect has ended; none of it starts meanwhile. Both locks are
    /// awaited at the same time, which is safe because no task holds one of them while it waits for the other.
    pub(crate) async fn isolate(&self, isolation: SuspectIsolation) -> Isolated {
        let inner = &self.lock.0;
        inner.wanted.store(isolation as u8, Relaxed);
        let _wanted = Wanted(&inner.wanted);
        let inbox = inner.inbox.clone().write_owned();
        if isolation < SuspectIsolation::Process {
            return Isolated { _inbox: inbox.await, _direct: None };
        }
        let (inbox, direct) = tokio::join!(inbox, inner.direct.clone().write_owned());
        inner.exclusive.fetch_add(1, Relaxed);
        Isolated { _inbox: inbox, _direct: Some(direct) }
    }
}

/// Resets `wanted` when the wait ends, however it ends.
struct Wanted<'a>(&'a AtomicU8);

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.store(SuspectIsolation::None as u8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn waits(future: impl Future) -> bool {
        tokio::time::timeout(Duration::from_millis(20), future).await.is_err()
    }

    #[tokio::test]
    async fn a_suspect_of_the_first_stage_keeps_out_rows_and_lets_direct_deliveries_go_on() {
        let lock = SuspectLock::new();
        let direct = lock.direct().await;
        let turn = lock.turn().await;
        let isolated = turn.isolate(SuspectIsolation::Inbox).await;
        assert!(!waits(lock.direct()).await);
        assert!(waits(lock.inbox()).await);
        assert!(waits(lock.turn()).await, "one suspect per process");
        drop(isolated);
        assert!(!waits(lock.inbox()).await);
        assert_eq!(lock.times_exclusive(), 0);
        drop(direct);
    }

    #[tokio::test]
    async fn a_suspect_of_the_second_stage_waits_for_all_and_keeps_out_all() {
        let lock = SuspectLock::new();
        let turn = lock.turn().await;
        for is_direct in [true, false] {
            let running = if is_direct { (Some(lock.direct().await), None) } else { (None, Some(lock.inbox().await)) };
            assert!(waits(turn.isolate(SuspectIsolation::Process)).await);
            assert_eq!(lock.wanted(), SuspectIsolation::None, "who gives up no longer waits");
            drop(running);
        }
        let isolated = turn.isolate(SuspectIsolation::Process).await;
        assert!(waits(lock.direct()).await);
        assert!(waits(lock.inbox()).await);
        drop(isolated);
        assert!(!waits(lock.direct()).await);
        assert_eq!(lock.times_exclusive(), 1);
    }

    #[tokio::test]
    async fn a_suspect_that_waits_stops_new_starts() {
        let lock = SuspectLock::new();
        let running = lock.inbox().await;
        let turn = lock.turn().await;
        let mut isolate = Box::pin(turn.isolate(SuspectIsolation::Process));
        assert!(waits(&mut isolate).await);
        assert_eq!(lock.wanted(), SuspectIsolation::Process);
        assert!(waits(lock.inbox()).await);
        assert!(waits(lock.direct()).await);
        drop(running);
        assert!(!waits(isolate).await);
    }
}
