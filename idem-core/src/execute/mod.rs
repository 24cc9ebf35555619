//! Handle, guard, commit: the steps that first deliveries, inbox rows and batches share.
//!
//! | file | contents |
//! |---|---|
//! | `handle` | calls handlers, within the handler timeout |
//! | `stage`, `local` | the messages that a handler has staged, and those of them that are for other handlers |
//! | `failure` | the result of a run |
//! | `fate` | how a run ended that was cut off |
//! | `conclude` | what follows from a run |

mod conclude;
mod failure;
mod fate;
mod handle;
mod local;
mod stage;

use std::time::Duration;

use tokio::time::Instant;

use crate::registry::Job;
use crate::routes::Route;
use crate::runtime::{Pipeline, Running};
use crate::store::{CommitResult, Identity, RollbackResult};
use crate::{Delivery, Store};

pub(crate) use failure::{Failure, RunResult};
pub(crate) use handle::Unhandled;
pub(crate) use stage::Staged;

impl<S: Store> Pipeline<S> {
    /// Handle, guard and commit in a transaction that holds the claim. The handler timeout starts at `now`.
    pub(crate) async fn execute(
        &self,
        running: &Running,
        route: &Route<S>,
        message: (&Identity, &Delivery),
        job: Box<dyn Job<S>>,
        mut txn: S::Txn,
        now: Instant,
    ) -> RunResult {
        let Some(user_code) = running.user_code() else { return self.undo(txn, Unhandled::PutOff).await };
        let outbox = job.outbox().cloned();
        let mut handled = self.handle(route, job, &mut txn, now).await;
        let ended = std::time::Instant::now();
        route.meters.handler.record(ended.saturating_duration_since(now.into_std()));
        let mut staged = Staged::default();
        if let (Ok(()), Some(outbox)) = (&handled, outbox) {
            handled = self.stage(&mut staged, route, message, &outbox).map_err(Unhandled::Failed);
        }
        drop(user_code);
        if let Err(unhandled) = handled {
            return self.undo(txn, unhandled).await;
        }
        let ran = self.commit(txn, staged).await;
        route.meters.commit.record(self.commit_ended(&ran, ended));
        ran
    }

    /// Returns the time from the end of the handlers to that of the commit, which is now. If the commit has succeeded, now is
    /// the time of the last progress: for a processed message, `emit` does not read the clock once more. The clock is that of
    /// the health, which counts on while a test pauses Tokio's.
    pub(crate) fn commit_ended(&self, ran: &RunResult, handlers_ended: std::time::Instant) -> Duration {
        let now = std::time::Instant::now();
        if matches!(ran, RunResult::Processed) {
            self.health.progress_at(now);
        }
        now.saturating_duration_since(handlers_ended)
    }

    /// Guard and commit, with the messages that the handlers have staged. The guard is part of the store's commit: it
    /// checks that the transaction is still the one that idem began.
    pub(crate) async fn commit(&self, mut txn: S::Txn, staged: Staged) -> RunResult {
        let wakes = staged.wakes();
        if let Err(fault) = self.hand_over(&mut txn, staged) {
            return self.undo(txn, Unhandled::Failed(fault.into())).await;
        }
        match self.store.commit(txn).await {
            CommitResult::NotSent(fault, ticket) => {
                self.cut_off(ticket.map(|ticket| *ticket), RunResult::Broke(fault)).await
            }
            committed => {
                // Also without an answer: the messages may be there.
                self.wake(wakes);
                RunResult::of(committed)
            }
        }
    }

    /// Ends the transaction of a handler that did not return `Ok`, and returns the result of the run.
    pub(crate) async fn undo(&self, mut txn: S::Txn, unhandled: Unhandled) -> RunResult {
        let ticket = self.store.ticket(&txn);
        let again = match &unhandled {
            Unhandled::Failed(error) => self.store.failed_with(&mut txn, error.as_ref()),
            _ => false,
        };
        let rolled_back = match unhandled {
            Unhandled::Failed(error) if again || self.store.lost_race(error.as_ref()) => RunResult::Retry(error),
            Unhandled::Failed(error) => RunResult::Failed(Failure::returned(error)),
            Unhandled::PutOff => RunResult::PutOff,
            // The handler was dropped at an arbitrary point, so the state of the connection is unknown: dropping the
            // transaction closes it.
            Unhandled::Late(timeout) => {
                drop(txn);
                return self.late(ticket, timeout).await;
            }
            Unhandled::Stopped => {
                drop(txn);
                return self.cut_off(ticket, RunResult::Stopped).await;
            }
        };
        match self.store.rollback(txn).await {
            Ok(RollbackResult::CommittedEarly) => {
                RunResult::Failed(Failure::committed(Box::new(ticket.unwrap_or_default())))
            }
            Ok(RollbackResult::CommitRefused) => RunResult::Failed(Failure::commit_refused()),
            Ok(RollbackResult::Ended) => RunResult::of(CommitResult::RolledBack),
            Ok(RollbackResult::RolledBack) => rolled_back,
            Ok(RollbackResult::Unbegun) => rolled_back.unbegun(),
            // Only our own statements detect an outage, whatever the handler returned.
            Err(fault) => match rolled_back {
                RunResult::PutOff => {
                    self.outage.report(&fault);
                    self.cut_off(ticket, RunResult::PutOff).await
                }
                _ => self.cut_off(ticket, RunResult::Broke(fault)).await,
            },
        }
    }
}
