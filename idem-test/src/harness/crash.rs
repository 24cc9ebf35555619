//! The point at which a process crashes.

use std::sync::Arc;

use tokio::sync::watch;

use crate::trace::ProcessTrace;

/// The point at which a worker's process ends as if by SIGKILL. All its tasks vanish, and it sends nothing to the
/// broker or the database.
///
/// ```no_run
/// # use idem_core::{BoxError, Outcome, Store};
/// # use idem_test::{Crash, Trial};
/// # async fn test<S: Store>(trial: Trial<S>, event: serde_json::Value) -> Result<(), BoxError> {
/// // The commit has happened, the ack has not: the next process gets the message again, and finds the claim.
/// let outcomes = trial.deliver_json(&event)?.crash(Crash::AfterCommit).once().await?;
/// assert_eq!(outcomes, [Outcome::Duplicate]);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Crash {
    /// The delivery has arrived; no transaction has begun.
    BeforeBegin,
    /// The claim is made but not committed.
    AfterClaim,
    /// The handler has reached its first await point: its first statement is running.
    InHandler,
    /// The handler has returned; nothing is committed.
    BeforeCommit,
    /// The transaction is committed; the broker has not received the ack.
    AfterCommit,
    /// The broker has received the ack.
    AfterAck,
}

impl Crash {
    /// Every point, in the order in which a delivery reaches them.
    pub const ALL: &[Self] =
        &[Self::BeforeBegin, Self::AfterClaim, Self::InHandler, Self::BeforeCommit, Self::AfterCommit, Self::AfterAck];
}

/// The fate of one process. Once its point is reached, every task that reaches any point stops there forever, so that a
/// dying process does no other work.
#[derive(Debug, Clone)]
pub struct Fate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    point: Option<Crash>,
    dead: watch::Sender<bool>,
    trace: Option<ProcessTrace>,
}

impl Fate {
    /// A process that ends at this point, or never if `None`, and the trace into which it writes its steps.
    pub(super) fn new(point: Option<Crash>, trace: Option<ProcessTrace>) -> Self {
        Self(Arc::new(Inner { point, dead: watch::Sender::new(false), trace }))
    }

    /// The trace of the process, if there is one.
    pub(super) fn traced(&self) -> Option<&ProcessTrace> {
        self.0.trace.as_ref()
    }

    /// Reaches a point: returns, or waits forever if the process is dead.
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
