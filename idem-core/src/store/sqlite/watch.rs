//! What a connection tells of its transactions, and how a statement in it is cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use tokio::sync::oneshot;

/// No transaction that is guarded.
const IDLE: u8 = 0;
/// A guarded transaction is open.
const GUARDED: u8 = 1;
/// It was rolled back, and not by us.
const ROLLED_BACK: u8 = 2;
/// A COMMIT that is not ours was refused, which rolled it back.
const REFUSED: u8 = 3;

/// How many virtual machine steps pass between two looks at the clock: some 100 µs.
const STEPS: i32 = 10_000;

/// Watches over a connection, by its hooks: they run in the connection's own thread.
#[derive(Debug)]
pub(super) struct Watch {
    origin: Instant,
    /// When a statement is interrupted, in milliseconds since the origin.
    limit: AtomicU64,
    state: AtomicU8,
}

impl Watch {
    /// Sets the hooks. `open` is dropped when the connection is closed.
    pub(super) async fn over(
        connection: &mut SqliteConnection,
        open: oneshot::Sender<()>,
    ) -> Result<Arc<Self>, sqlx::Error> {
        let watch =
            Arc::new(Self { origin: Instant::now(), limit: AtomicU64::new(u64::MAX), state: AtomicU8::new(IDLE) });
        let mut handle = connection.lock_handle().await?;
        let clock = watch.clone();
        handle.set_progress_handler(STEPS, move || clock.elapsed() < clock.limit.load(SeqCst));
        let commits = watch.clone();
        handle.set_commit_hook(move || commits.allows_commit());
        let rollbacks = watch.clone();
        // sqlx drops the rollback hook as the last thing before it closes the connection, and `open` with it.
        handle.set_rollback_hook(move || {
            let _alive = &open;
            let _ = rollbacks.state.compare_exchange(GUARDED, ROLLED_BACK, SeqCst, SeqCst);
        });
        Ok(watch)
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Refuses each COMMIT that is not ours. SQLite makes a ROLLBACK of one that is refused.
    ///
    /// Where the transaction was rolled back behind our back (that way, or by `ROLLBACK`, `INSERT OR ROLLBACK`, a full disk),
    /// each later statement of the handler would commit by itself. They are refused, so that nothing of the handler stands.
    fn allows_commit(&self) -> bool {
        let _ = self.state.compare_exchange(GUARDED, REFUSED, SeqCst, SeqCst);
        self.state.load(SeqCst) == IDLE
    }

    /// From now on the end of the transaction is noted, since it would not be ours.
    pub(super) fn guard(&self) {
        self.state.store(GUARDED, SeqCst);
    }

    /// What comes from now on is ours.
    pub(super) fn release(&self) {
        self.state.store(IDLE, SeqCst);
    }

    /// Whether the guarded transaction was rolled back, and not by us.
    pub(super) fn rolled_back(&self) -> bool {
        self.state.load(SeqCst) == ROLLED_BACK
    }

    /// Whether the handler ran COMMIT, which was refused.
    pub(super) fn refused(&self) -> bool {
        self.state.load(SeqCst) == REFUSED
    }

    /// Statements are interrupted after this time.
    pub(super) fn limit(&self, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.limit.store(self.elapsed().saturating_add(time), SeqCst);
    }

    /// Statements take as long as they take.
    pub(super) fn unlimited(&self) {
        self.limit.store(u64::MAX, SeqCst);
    }

    /// The statement that runs now is interrupted.
    pub(super) fn interrupt(&self) {
        self.limit.store(0, SeqCst);
    }
}
