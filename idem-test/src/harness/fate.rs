//! The fate of a process: whether it dies, and where.

use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;

use crate::trace::ProcessTrace;

use super::crash::Crash;
use super::polls::{Call, Point, Polls};

/// The fate of one process. Once its point is reached, every task that reaches any point stops there forever, so that a
/// dying process does no other work.
#[derive(Debug, Clone)]
pub struct Fate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    death: Death,
    dead: watch::Sender<bool>,
    trace: Option<ProcessTrace>,
}

#[derive(Debug)]
enum Death {
    Never,
    At(Crash),
    BeforePoll(Polls),
}

impl Fate {
    /// A process that ends at this point, or never if `None`, and the trace into which it writes its steps.
    pub(super) fn new(point: Option<Crash>, trace: Option<ProcessTrace>) -> Self {
        Self::of(point.map_or(Death::Never, Death::At), trace)
    }

    /// A process that ends before this poll, or never if `None`. It writes no trace.
    pub(super) fn before_poll(point: Option<Point>) -> Self {
        Self::of(point.map_or(Death::Never, |point| Death::BeforePoll(Polls::until(point))), None)
    }

    fn of(death: Death, trace: Option<ProcessTrace>) -> Self {
        Self(Arc::new(Inner { death, dead: watch::Sender::new(false), trace }))
    }

    /// The trace of the process, if there is one.
    pub(super) fn traced(&self) -> Option<&ProcessTrace> {
        self.0.trace.as_ref()
    }

    /// Reaches a point: returns, or waits forever if the process is dead.
    pub(super) async fn reach(&self, point: Crash) {
        match &self.0.death {
            Death::At(at) if *at == point => self.die(),
            // No counted poll may follow these two, while each other point is directly before one.
            Death::BeforePoll(_) if matches!(point, Crash::AfterCommit | Crash::AfterAck) => {
                self.polled(Call::Other, ready(())).await;
            }
            _ => {}
        }
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// Polls a call until it is ready, or the process dies before one of these polls, or when COMMIT is answered.
    pub(super) async fn polled<R>(&self, call: Call, work: impl Future<Output = R>) -> R {
        let Death::BeforePoll(polls) = &self.0.death else { return work.await };
        let mut work = pin!(work);
        poll_fn(|cx| {
            if !self.is_dead() && polls.count(call) {
                self.die();
            }
            // Nothing wakes a task of a dead process: its runtime is dropped.
            if self.is_dead() {
                return Poll::Pending;
            }
            let polled = work.as_mut().poll(cx);
            // A COMMIT may be answered in its first poll, for instance if the thread of SQLite runs before this one does.
            // The answer is a point as well, so that there is always one behind the commit.
            if polled.is_ready() && call == Call::Commit && polls.count(call) {
                self.die();
                return Poll::Pending;
            }
            polled
        })
        .await
    }

    /// Whether the process ends before a poll.
    pub(super) fn is_counted(&self) -> bool {
        matches!(self.0.death, Death::BeforePoll(_))
    }

    /// Whether the process ends at this point.
    pub(super) fn is_at(&self, point: Crash) -> bool {
        matches!(self.0.death, Death::At(at) if at == point)
    }

    /// Waits until the point is reached.
    pub(crate) async fn sealed(&self) {
        // The sender lives in `self`, so that waiting cannot fail.
        let _ = self.0.dead.subscribe().wait_for(|dead| *dead).await;
    }

    fn die(&self) {
        self.0.dead.send_replace(true);
    }

    fn is_dead(&self) -> bool {
        *self.0.dead.borrow()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::harness::phase::Phase;

    #[tokio::test]
    async fn an_answer_to_commit_that_is_there_at_once_is_a_point() {
        let fate = Fate::before_poll(Some(Point { phase: Phase::InCommit, number: 2 }));
        fate.polled(Call::Handler, ready(())).await;
        assert!(fate.polled(Call::Commit, ready(())).now_or_never().is_none());
    }
}
