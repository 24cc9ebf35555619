//! Ends transactions: by COMMIT, or by ROLLBACK.

use std::time::Duration;

use crate::runtime::{Ended, Pipeline, Wait};
use crate::store::{CommitResult, ErrorClass, RollbackResult};
use crate::{BoxError, Store};

use super::Failure;
use super::stage::Staged;

impl<S: Store> Pipeline<S> {
    /// Returns the time from the end of the handlers to that of the commit, which is now. If the commit has succeeded, now is
    /// the time of the last progress: for a processed message, `emit` does not read the clock once more. The clock is that of
    /// the health, which counts on while a test pauses Tokio's.
    pub(super) fn commit_ended(&self, ran: &Ended, handlers_ended: std::time::Instant) -> Duration {
        let now = std::time::Instant::now();
        if matches!(ran, Ended::Done(_)) {
            self.health.progress_at(now);
        }
        now.saturating_duration_since(handlers_ended)
    }

    /// Guard and commit, with the messages that the handlers have staged. The guard is part of the store's commit: it
    /// checks that the transaction is still the one that idem began.
    pub(super) async fn commit(&self, mut txn: S::Txn, staged: Staged) -> Ended {
        let wakes = staged.wakes();
        self.hand_over(&mut txn, staged);
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
    pub(super) async fn undo(&self, mut txn: S::Txn, error: Option<BoxError>) -> Ended {
        let ticket = self.store.ticket(&txn);
        let rolled_back = match error {
            None => Ended::Park(Wait::Free),
            Some(error) => {
                let class = self.store.classify_error(Some(&mut txn), error.as_ref());
                if class != ErrorClass::Ordinary {
                    Ended::Again(Some(error))
                } else {
                    Ended::Failed(Failure::returned(error))
                }
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
