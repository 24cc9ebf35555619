//! Handle, guard, commit: the steps that first deliveries, inbox rows and batches share.
//!
//! | file | contents |
//! |---|---|
//! | `handle` | calls handlers, within the handler timeout |
//! | `stage`, `local` | the messages that a handler has staged, and those of them that are for other handlers |
//! | `failure` | what has failed, and what becomes of its message |
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
use crate::runtime::{Ended, Pipeline, Running, Wait};
use crate::store::{CommitResult, Identity, RollbackResult};
use crate::{BoxError, Delivery, Store};

pub(crate) use failure::Failure;
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
    ) -> Ended {
        let Some(user_code) = running.user_code() else { return self.undo(txn, None).await };
        let outbox = job.outbox().cloned();
        let mut handled = self.handle(route, job, &mut txn, now).await;
        let ended = std::time::Instant::now();
        route.meters.handler.record(ended.saturating_duration_since(now.into_std()));
        let mut staged = Staged::default();
        if let (Some(Ok(())), Some(outbox)) = (&handled, outbox) {
            handled = Some(self.stage(&mut staged, route, message, &outbox));
        }
        drop(user_code);
        match handled {
            Some(Ok(())) => {}
            Some(Err(error)) => return self.undo(txn, Some(error)).await,
            None => return self.unreturned(txn, route.timeout).await,
        }
        let ran = self.commit(txn, staged).await;
        route.meters.commit.record(self.commit_ended(&ran, ended));
        ran
    }

    /// Returns the time from the end of the handlers to that of the commit, which is now. If the commit has succeeded, now is
    /// the time of the last progress: for a processed message, `emit` does not read the clock once more. The clock is that of
    /// the health, which counts on while a test pauses Tokio's.
    pub(crate) fn commit_ended(&self, ran: &Ended, handlers_ended: std::time::Instant) -> Duration {
        let now = std::time::Instant::now();
        if matches!(ran, Ended::Done(_)) {
            self.health.progress_at(now);
        }
        now.saturating_duration_since(handlers_ended)
    }

    /// Guard and commit, with the messages that the handlers have staged. The guard is part of the store's commit: it
    /// checks that the transaction is still the one that idem began.
    pub(crate) async fn commit(&self, mut txn: S::Txn, staged: Staged) -> Ended {
        let wakes = staged.wakes();
        if let Err(fault) = self.hand_over(&mut txn, staged) {
            return self.undo(txn, Some(fault.into())).await;
        }
        match self.store.commit(txn).await {
            CommitResult::NotSent(fault, ticket) => {
                self.cut_off(ticket.map(|ticket| *ticket), Ended::Broke(fault)).await
            }
            committed => {
                // Also without an answer: the messages may be there.
                self.wake(wakes);
                Ended::of(committed)
            }
        }
    }

    /// Rolls back the transaction of a handler that has returned this error, or, without one, of a handler that is not called now,
    /// since a suspect runs or waits.
    pub(crate) async fn undo(&self, mut txn: S::Txn, error: Option<BoxError>) -> Ended {
        let ticket = self.store.ticket(&txn);
        let rolled_back = match error {
            None => Ended::Park(Wait::Free),
            Some(error) => {
                let again = self.store.failed_with(&mut txn, error.as_ref()) || self.store.lost_race(error.as_ref());
                if again { Ended::Again(error) } else { Ended::Failed(Failure::returned(error)) }
            }
        };
        match self.store.rollback(txn).await {
            Ok(RollbackResult::CommittedEarly) => {
                Ended::Failed(Failure::committed(Box::new(ticket.unwrap_or_default())))
            }
            Ok(RollbackResult::CommitRefused) => Ended::Failed(Failure::commit_refused()),
            Ok(RollbackResult::Ended) => Ended::of(CommitResult::RolledBack),
            Ok(RollbackResult::RolledBack) => rolled_back,
            Ok(RollbackResult::Unbegun) => rolled_back.unbegun(),
            // Only our own statements detect an outage, whatever the handler returned.
            Err(fault) => match rolled_back {
                Ended::Park(turn) => {
                    self.outage.report(&fault);
                    self.cut_off(ticket, Ended::Park(turn)).await
                }
                _ => self.cut_off(ticket, Ended::Broke(fault)).await,
            },
        }
    }
}
