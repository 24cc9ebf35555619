//! Handle, guard, commit: what a first delivery, a row of the inbox and a batch have in common.

mod fate;
mod ran;

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::registry::{Job, Route, panic_text};
use crate::runtime::{Pipeline, at};
use crate::store::{Committed, Undone};
use crate::{BoxError, Store};

pub(crate) use ran::{Failure, IN_PLACE, Ran};

/// What a call of a handler came to.
pub(crate) enum Handled {
    Returned(Result<(), BoxError>),
    Panicked(String),
    Late,
    Stopped,
}

impl<S: Store> Pipeline<S> {
    /// Handle, guard, commit, from now on: the part that a first delivery and a row of the inbox have in common.
    pub(crate) async fn execute(&self, route: &Route<S>, job: Box<dyn Job<S>>, mut txn: S::Txn, now: Instant) -> Ran {
        let handled = self.handle(job, &mut txn, now).await;
        let ended = Instant::now();
        route.meters.handler.record(ended - now);
        let ticket = self.store.ticket(&txn);
        let error = match handled {
            Handled::Returned(Ok(())) => {
                let ran = Ran::of(self.store.commit(txn).await);
                route.meters.commit.record(ended.elapsed());
                return ran;
            }
            Handled::Returned(Err(error)) => error,
            Handled::Panicked(text) => format!("the handler panicked: {text}").into(),
            // The handler was dropped in the middle of whatever it did, so that the connection's state is unknown:
            // dropping the transaction closes it.
            Handled::Late => {
                drop(txn);
                return self.late(ticket).await;
            }
            Handled::Stopped => {
                drop(txn);
                return self.cut_off(ticket, Ran::Stopped).await;
            }
        };
        let lost_race = self.store.lost_race(error.as_ref());
        match self.store.rollback(txn).await {
            Ok(Undone::CommittedEarly) => Ran::CommittedEarly,
            Ok(Undone::CommitRefused) => Ran::Failed(Failure::commit_refused()),
            Ok(Undone::Ended) => Ran::of(Committed::RolledBack),
            Ok(Undone::RolledBack) if lost_race => Ran::Retry(error),
            Ok(Undone::RolledBack) => Ran::Failed(Failure::of(&error)),
            // Only a statement of ours tells an outage, whatever the handler said.
            Err(fault) => self.cut_off(ticket, Ran::Broke(fault)).await,
        }
    }

    /// Runs the handler under its deadline, from now on. This is the one place where a panic of a handler is caught.
    pub(crate) async fn handle(&self, job: Box<dyn Job<S>>, txn: &mut S::Txn, now: Instant) -> Handled {
        let mut run = job.run(txn);
        let handled = tokio::select! {
            biased;
            ran = AssertUnwindSafe(&mut run).catch_unwind() => match ran {
                Ok(result) => Handled::Returned(result),
                Err(panic) => Handled::Panicked(panic_text(panic.as_ref())),
            },
            // `None` where the deadline is beyond all time.
            () = at(now.checked_add(self.settings.deadline)) => Handled::Late,
            () = self.stop.cancelled() => Handled::Stopped,
        };
        // What is dropped is a user's code as well, and its panic must cost no more than its message.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(run))) {
            tracing::warn!(panic = panic_text(panic.as_ref()), "a handler that was cut off panicked as it was dropped");
        }
        handled
    }
}
