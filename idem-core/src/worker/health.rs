//! Whether a worker is fit for work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Whether a worker is fit for work, for a readiness probe. A handle: clones see the same worker.
///
/// All of it is `false` before the worker has started and after it has ended.
#[derive(Debug, Clone)]
pub struct Health(Arc<State>);

#[derive(Debug)]
struct State {
    broker: AtomicBool,
    database: AtomicBool,
    /// Milliseconds after `born`.
    progress: AtomicU64,
    born: Instant,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self(Arc::new(State {
            broker: AtomicBool::new(false),
            database: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            born: Instant::now(),
        }))
    }

    /// Whether messages can be worked on: broker and database are both there.
    pub fn is_ready(&self) -> bool {
        self.broker() && self.database()
    }

    /// Whether the subscription stands. `false` from the moment at which its stream has ended, for whatever reason.
    pub fn broker(&self) -> bool {
        self.0.broker.load(Relaxed)
    }

    /// Whether the database answered when it was last asked.
    pub fn database(&self) -> bool {
        self.0.database.load(Relaxed)
    }

    /// How long ago a delivery or an inbox row last got its outcome; since the worker was made, if there was none.
    /// Long is not bad by itself: the queue may be empty.
    pub fn last_progress(&self) -> Duration {
        self.0.born.elapsed().saturating_sub(Duration::from_millis(self.0.progress.load(Relaxed)))
    }

    pub(crate) fn set_broker(&self, up: bool) {
        self.0.broker.store(up, Relaxed);
    }

    pub(crate) fn set_database(&self, up: bool) {
        self.0.database.store(up, Relaxed);
    }

    pub(crate) fn progress(&self) {
        let millis = u64::try_from(self.0.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.progress.store(millis, Relaxed);
    }
}
