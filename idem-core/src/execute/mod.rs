//! Handle, guard, commit: what a first delivery, a row of the inbox and a batch have in common.

mod conclude;
mod fate;
mod handle;
mod ran;

use tokio::time::Instant;

use crate::Store;
use crate::registry::{Job, Route};
use crate::runtime::Pipeline;
use crate::store::{CommitResult, RollbackResult};

pub(crate) use conclude::{Charge, Conclusion};
pub(crate) use handle::Unhandled;
pub(crate) use ran::{Failure, RunResult};

impl<S: Store> Pipeline<S> {
    /// Handle, guard, commit, from now on, in a transaction that holds the claim.
    pub(crate) async fn execute(
        &self,
        route: &Route<S>,
        job: Box<dyn Job<S>>,
        mut txn: S::Txn,
        now: Instant,
    ) -> RunResult {
        let handled = self.handle(job, &mut txn, now).await;
        let ended = Instant::now();
        route.meters.handler.record(ended - now);
        if let Err(unhandled) = handled {
            return self.undo(txn, unhandled).await;
        }
        // The store's guard is a part of its commit: the transaction has to be the one that was begun.
        let ran = RunResult::of(self.store.commit(txn).await);
        route.meters.commit.record(ended.elapsed());
        ran
    }

    /// Ends the transaction of a handler that did not return `Ok`, and says what its run came to.
    pub(crate) async fn undo(&self, txn: S::Txn, unhandled: Unhandled) -> RunResult {
        let ticket = self.store.ticket(&txn);
        let error = match unhandled {
            Unhandled::Failed(error) => error,
            // The handler was dropped in the middle of whatever it did, so that the connection's state is unknown:
            // dropping the transaction closes it.
            Unhandled::Late => {
                drop(txn);
                return self.late(ticket).await;
            }
            Unhandled::Stopped => {
                drop(txn);
                return self.cut_off(ticket, RunResult::Stopped).await;
            }
        };
        let lost_race = self.store.lost_race(error.as_ref());
        match self.store.rollback(txn).await {
            Ok(RollbackResult::CommittedEarly) => RunResult::CommittedEarly,
            Ok(RollbackResult::CommitRefused) => RunResult::Failed(Failure::commit_refused()),
            Ok(RollbackResult::Ended) => RunResult::of(CommitResult::RolledBack),
            Ok(RollbackResult::RolledBack) if lost_race => RunResult::Retry(error),
            Ok(RollbackResult::RolledBack) => RunResult::Failed(Failure::of(&error)),
            // Only a statement of ours tells an outage, whatever the handler said.
            Err(fault) => self.cut_off(ticket, RunResult::Broke(fault)).await,
        }
    }
}
