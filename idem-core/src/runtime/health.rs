//! Whether a worker is fit for work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Whether a worker is fit for work, for a readiness probe. A handle: clones see the same worker.
///
/// Before the worker has started and after it has ended it is not ready, and neither broker nor database is there.
#[derive(Debug, Clone)]
pub struct Health(Arc<State>);

#[derive(Debug)]
struct State {
    broker: AtomicBool,
    database: AtomicBool,
    paused: watch::Sender<Option<String>>,
    /// Milliseconds after `born`.
    progress: AtomicU64,
    born: Instant,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self(Arc::new(State {
            broker: AtomicBool::new(false),
            database: AtomicBool::new(false),
            paused: watch::Sender::new(None),
            progress: AtomicU64::new(0),
            born: Instant::now(),
        }))
    }

    /// Whether messages can be worked on: broker and database are both there, and consumption is not paused.
    pub fn is_ready(&self) -> bool {
        self.broker() && self.database() && self.0.paused.borrow().is_none()
    }

    /// Whether the subscription stands. `false` from the moment at which its stream has ended, for whatever reason.
    pub fn broker(&self) -> bool {
        self.0.broker.load(Relaxed)
    }

    /// Whether the database lets idem do its work. `false` while it gives no answer, refuses what is written (no room,
    /// read-only, no table), or refuses each of the messages that are held, so that no further one can be taken. One lost
    /// connection changes nothing as long as the database answers.
    pub fn database(&self) -> bool {
        self.0.database.load(Relaxed)
    }

    /// Why the worker has paused consumption by itself, if it has: no handler could be called for too many of the last
    /// deliveries, see [`unfit_limit`](crate::Worker::unfit_limit). It stays so until [`resume`](Self::resume), or until
    /// the worker is started again.
    pub fn paused(&self) -> Option<String> {
        self.0.paused.borrow().clone()
    }

    /// Lets a worker go on that has paused consumption by itself. The deliveries that it holds become dead letters then, as
    /// those before; once there are as many again, it pauses again. Without effect on a worker that is not paused.
    pub fn resume(&self) {
        self.0.paused.send_replace(None);
    }

    pub(crate) fn pause(&self, why: String) {
        self.0.paused.send_replace(Some(why));
    }

    /// Waits until consumption is not paused. Cancel safe.
    pub(crate) async fn resumed(&self) {
        // Looked at first, since it is asked for each delivery.
        if self.0.paused.borrow().is_some() {
            // The sender lives in `self`, so that waiting cannot fail.
            let _ = self.0.paused.subscribe().wait_for(Option::is_none).await;
        }
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
