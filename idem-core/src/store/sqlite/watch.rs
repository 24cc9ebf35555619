//! Hooks that track a connection's transactions and interrupt its statements.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use tokio::sync::oneshot;

/// No guarded transaction is open.
const IDLE: u8 = 0;
/// A guarded transaction is open.
const GUARDED: u8 = 1;
/// It was rolled back, but not by idem.
const ROLLED_BACK: u8 = 2;
/// A COMMIT that idem did not run was refused, which rolled it back.
const REFUSED: u8 = 3;
/// A guarded transaction is open, and idem has sent its COMMIT.
const ENDING: u8 = 4;
/// The COMMIT that was allowed has run.
const ENDED: u8 = 5;

/// The number of virtual machine steps between two checks of the clock: about 100 µs.
pub(super) const STEPS: i32 = 10_000;

/// Tracks a connection through its hooks, which run in the connection's thread.
#[derive(Debug)]
pub(super) struct Watch {
    origin: Instant,
    /// When a statement is interrupted, in milliseconds since the origin.
    limit: AtomicU64,
    state: AtomicU8,
}

impl Watch {
    /// Installs the hooks. `open` is dropped when the connection is closed.
    pub(super) async fn over(connection: &mut SqliteConnection, open: oneshot::Sender<()>) -> sqlx::Result<Arc<Self>> {
        let watch =
            Arc::new(Self { origin: Instant::now(), limit: AtomicU64::new(u64::MAX), state: AtomicU8::new(IDLE) });
        let mut handle = connection.lock_handle().await?;
        let clock = watch.clone();
        handle.set_progress_handler(STEPS, move || clock.elapsed() < clock.limit.load(SeqCst));
        let commits = watch.clone();
        handle.set_commit_hook(move || commits.allows_commit());
        let rollbacks = watch.clone();
        // sqlx drops the rollback hook, and `open` with it, as the last step before it closes the connection.
        handle.set_rollback_hook(move || {
            let _alive = &open;
            for state in [GUARDED, ENDING] {
                let _ = rollbacks.state.compare_exchange(state, ROLLED_BACK, SeqCst, SeqCst);
            }
        });
        Ok(watch)
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Refuses each COMMIT that idem did not run. SQLite turns a refused COMMIT into a ROLLBACK.
    ///
    /// If the transaction was rolled back by the handler (in this way, or by `ROLLBACK`, `INSERT OR ROLLBACK`, a full
    /// disk), each later statement of the handler would autocommit. They are refused, so that none of the handler's
    /// writes persist.
    fn allows_commit(&self) -> bool {
        let _ = self.state.compare_exchange(GUARDED, REFUSED, SeqCst, SeqCst);
        // Only the first one: statements that a handler has sent behind its own COMMIT would autocommit.
        self.state.load(SeqCst) == IDLE || self.state.compare_exchange(ENDING, ENDED, SeqCst, SeqCst).is_ok()
    }

    /// From now on, records the end of the transaction, which idem did not cause.
    pub(super) fn guard(&self) {
        self.state.store(GUARDED, SeqCst);
    }

    /// From now on, the guarded transaction may be committed once, unless it has ended already: the command that is sent
    /// next releases the savepoint and commits, and is not answered in between.
    pub(super) fn end(&self) {
        let _ = self.state.compare_exchange(GUARDED, ENDING, SeqCst, SeqCst);
    }

    /// From now on, idem ends the transaction itself.
    pub(super) fn release(&self) {
        self.state.store(IDLE, SeqCst);
    }

    /// Returns whether the guarded transaction was rolled back, but not by idem.
    pub(super) fn rolled_back(&self) -> bool {
        self.state.load(SeqCst) == ROLLED_BACK
    }

    /// Returns whether the handler ran COMMIT, which was refused.
    pub(super) fn refused(&self) -> bool {
        self.state.load(SeqCst) == REFUSED
    }

    /// Interrupts statements after this time.
    pub(super) fn limit(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.limit.store(self.elapsed().saturating_add(time), SeqCst);
    }
}
