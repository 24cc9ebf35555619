//! Where a process ends.

use std::sync::Arc;

use tokio::sync::watch;

/// The point at which a worker's process ends as if by SIGKILL: everything in it vanishes, nothing is said to anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Crash {
    /// The delivery has arrived, and nothing has begun.
    BeforeBegin,
    /// The claim is made, and not committed.
    AfterClaim,
    /// The handler has come to the first point at which it waits: its first statement is under way.
    InHandler,
    /// The handler has returned, and nothing is committed.
    BeforeCommit,
    /// It is committed, and the broker has not heard of it.
    AfterCommit,
    /// The broker has heard of it.
    AfterAck,
}

impl Crash {
    /// Every point, in the order in which a delivery comes to them.
    pub const ALL: [Self; 6] =
        [Self::BeforeBegin, Self::AfterClaim, Self::InHandler, Self::BeforeCommit, Self::AfterCommit, Self::AfterAck];
}

/// The fate of one process. Once its point is reached, whoever comes to any point stops there for ever, so that a dying
/// process does not get on with other work.
#[derive(Debug, Clone)]
pub(crate) struct Fate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    point: Option<Crash>,
    dead: watch::Sender<bool>,
}

impl Fate {
    /// A process that ends at this point, or lives.
    pub(super) fn new(point: Option<Crash>) -> Self {
        Self(Arc::new(Inner { point, dead: watch::Sender::new(false) }))
    }

    /// Comes to a point: goes on, or stops for ever.
    pub(super) async fn reach(&self, point: Crash) {
        if self.0.point == Some(point) {
            self.0.dead.send_replace(true);
        }
        if *self.0.dead.borrow() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the process ends at this point.
    pub(super) fn is_at(&self, point: Crash) -> bool {
        self.0.point == Some(point)
    }

    /// Waits until the point is reached.
    pub(crate) async fn sealed(&self) {
        // The sender lives in `self`, so that waiting cannot fail.
        let _ = self.0.dead.subscribe().wait_for(|dead| *dead).await;
    }
}
