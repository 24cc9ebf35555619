//! The crash plan of a process: whether it dies, and where.

use std::cell::RefCell;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;

use crate::trace::ProcessTrace;

use super::crash::Crash;
use super::leases::Leases;
use super::polls::{Call, Point, Polls};
use super::subject::Subject;

thread_local! {
    /// The crash plan of the process that has this thread to itself, for its external calls: they have no store and no source.
    static OF_THREAD: RefCell<Option<CrashPlan>> = const { RefCell::new(None) };
}

/// The crash plan of one process. Once its point is reached, every task that reaches any point stops there forever, so that a
/// dying process does no other work.
#[derive(Debug, Clone)]
pub struct CrashPlan(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    death: Death,
    dead: watch::Sender<bool>,
    trace: Option<ProcessTrace>,
    /// In a trial that crashes everywhere.
    leases: Option<Leases>,
}

#[derive(Debug)]
enum Death {
    Never,
    At(Crash),
    BeforePoll(Polls),
}

impl CrashPlan {
    /// A process that ends at this point, or never if `None`, and the trace into which it writes its steps.
    pub(super) fn new(point: Option<Crash>, trace: Option<ProcessTrace>) -> Self {
        Self::of(point.map_or(Death::Never, Death::At), trace, None)
    }

    /// A process of a trial that crashes everywhere. It ends before this poll, or never if `None`, and writes no trace.
    pub(super) fn before_poll(point: Option<Point>, subject: Arc<Subject>) -> Self {
        let dies = |point| Death::BeforePoll(Polls::until(point, subject.handler.calls));
        let death = point.map_or(Death::Never, dies);
        Self::of(death, None, Some(Leases::new(subject)))
    }

    fn of(death: Death, trace: Option<ProcessTrace>, leases: Option<Leases>) -> Self {
        Self(Arc::new(Inner { death, dead: watch::Sender::new(false), trace, leases }))
    }

    /// Makes this the crash plan of the external calls on this thread.
    pub(super) fn enter_thread(&self) {
        OF_THREAD.set(Some(self.clone()));
    }

    /// Returns the crash plan of the external calls on this thread, if a process has it to itself.
    pub(super) fn of_thread() -> Option<Self> {
        OF_THREAD.with_borrow(Clone::clone)
    }

    /// The leases of the process, in a trial that crashes everywhere.
    pub(super) fn leases(&self) -> Option<&Leases> {
        self.0.leases.as_ref()
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

    /// Polls a call until it is ready, or the process dies before one of these polls, or without the answer.
    pub(super) async fn polled<R>(&self, call: Call, work: impl Future<Output = R>) -> R {
        let Death::BeforePoll(polls) = &self.0.death else { return work.await };
        let _ends = polls.ends(call);
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
            if polled.is_ready() && polls.answered(call) {
                self.die();
                return Poll::Pending;
            }
            polled
        })
        .await
    }

    /// A message was fetched for its call.
    pub(super) fn message_is_fetched(&self) {
        if let Death::BeforePoll(polls) = &self.0.death {
            polls.fetched();
        }
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
    pub async fn sealed(&self) {
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

    /// A process that dies at this point.
    fn dies_at(phase: Phase, number: usize) -> CrashPlan {
        CrashPlan::before_poll(Some(Point { phase, number }), Arc::default())
    }

    #[tokio::test]
    async fn an_answer_to_commit_that_is_there_at_once_is_a_point() {
        let crash_plan = dies_at(Phase::InCommit, 2);
        crash_plan.polled(Call::Handler, ready(())).await;
        assert!(crash_plan.polled(Call::Commit, ready(())).now_or_never().is_none());
    }

    #[tokio::test]
    async fn an_external_call_has_a_point_before_it_is_sent_in_each_wait_and_behind_its_answer() {
        for (phase, number, polls) in [(Phase::CallWritten, 1, 0), (Phase::InCall, 1, 1), (Phase::AnswerRead, 1, 2)] {
            let (crash_plan, mut polled) = (dies_at(phase, number), 0);
            let call = poll_fn(|cx| {
                polled += 1;
                cx.waker().wake_by_ref();
                if polled < 2 { Poll::Pending } else { Poll::Ready(()) }
            });
            let (call, dead) = (crash_plan.polled(Call::External, call), crash_plan.sealed());
            tokio::select! {
                biased;
                () = dead => {}
                () = call => panic!("the process has lived {phase}"),
            }
            assert_eq!(polled, polls, "{phase}");
        }
    }

    /// As by its timeout: the next one has not begun.
    #[tokio::test]
    async fn a_call_that_was_dropped_is_over() {
        for (call, phase) in [(Call::External, Phase::CallWritten), (Call::Publish, Phase::BeforePublish)] {
            let crash_plan = dies_at(phase, 2);
            assert!(crash_plan.polled(call, std::future::pending::<()>()).now_or_never().is_none());
            assert!(crash_plan.polled(call, ready(())).now_or_never().is_none(), "the process has lived {phase}");
        }
    }

    /// They are made at any time.
    #[tokio::test]
    async fn a_fetch_of_calls_is_a_point_only_while_a_message_is_stored_and_not_fetched() {
        let crash_plan = dies_at(Phase::BeforeHandler, 2);
        crash_plan.polled(Call::Fetch, ready(())).await;
        crash_plan.polled(Call::Fetch, ready(())).await;
        // The commit is the first point.
        let commit = dies_at(Phase::BeforeHandler, 3);
        commit.polled(Call::Commit, ready(())).await;
        assert!(commit.polled(Call::Fetch, ready(())).now_or_never().is_none());
        let fetched = dies_at(Phase::BeforeHandler, 3);
        fetched.polled(Call::Commit, ready(())).await;
        fetched.message_is_fetched();
        fetched.polled(Call::Fetch, ready(())).await;
    }
}
