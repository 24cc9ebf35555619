//! Writes the inbox row of one message that has a key: it runs later, or it is dead.

use std::time::Duration;

use crate::execute::Failure;
use crate::runtime::{Pipeline, Progress};
use crate::store::{ClaimState, Identity, NewRow};
use crate::{Delivery, Outcome, Reason, Store};

use super::classify::Classified;

impl<S: Store> Pipeline<S> {
    /// Stores a redelivered message before it runs: a process may have died on it, and only the inbox counts that.
    pub(crate) async fn enqueue(&self, delivery: &Delivery, identity: &Identity) -> Progress {
        self.record(delivery, identity, &Failure::new(Ok(Duration::ZERO), "")).await
    }

    /// Schedules a message whose first run has failed, or makes it dead. The failure of a copy or of a conflict is not recorded:
    /// then only the log has it.
    pub(crate) async fn charge(&self, delivery: &Delivery, identity: &Identity, charge: &Failure) -> Progress {
        if let Some(left_by) = &charge.left_by
            && !self.routes.is_unclaimed(identity.handler)
        {
            let recorded = self.record_early_commit(delivery, identity, charge, left_by).await;
            return recorded.map_or_else(Progress::Refused, Progress::Done);
        }
        let step = self.record(delivery, identity, charge).await;
        if let Progress::Done(outcome @ (Outcome::Duplicate | Outcome::Dead { reason: Reason::Conflict })) = &step {
            let (outcome, error) = (outcome.as_str(), charge.error.as_str());
            tracing::warn!(
                outcome,
                key = %identity.key,
                error,
                "a message has failed whose key has been claimed meanwhile, so the failure is not recorded"
            );
        }
        step
    }

    /// Makes a message dead that is too old. The claim of this transaction marks the message as processed, so another
    /// transaction takes it over.
    pub(crate) async fn dead_letter_too_old(
        &self,
        txn: S::Txn,
        delivery: &Delivery,
        identity: &Identity,
        why: &str,
    ) -> Progress {
        if let Err(fault) = self.store.rollback(txn).await {
            return self.outage.hold_for(fault);
        }
        self.record(delivery, identity, &Failure::new(Err(Reason::TooOld), why)).await
    }

    /// Writes the claim first, then the row, in one transaction.
    async fn record(&self, delivery: &Delivery, identity: &Identity, failure: &Failure) -> Progress {
        let Some(route) = self.routes.get(identity.handler) else { return Progress::Stopped };
        let (timeout, waiting) = (self.settings.handler_timeout, ClaimState::Waiting);
        let (mut txn, classified) = match self.claim(timeout, delivery, identity, waiting).await {
            Ok(claimed) => claimed,
            Err(step) => return step,
        };
        let too_old;
        let failure = match &classified {
            Classified::New => failure,
            // A message that is already dead keeps its reason.
            Classified::TooOld(_) if failure.next.is_err() => failure,
            Classified::TooOld(dead) => {
                let attempts = failure.attempts;
                too_old = Failure { attempts, ..Failure::new(Err(Reason::TooOld), dead.error.as_str()) };
                &too_old
            }
            known => return self.answer(txn, route, known).await,
        };
        let row = NewRow::new(identity, delivery, failure.next).with_attempts(failure.attempts, &failure.error);
        let row = match route.first_provider_key(identity, delivery) {
            Some(provider_key) if failure.next == Ok(Duration::ZERO) => row.with_call(provider_key),
            Some(provider_key) => row.with_provider_key(provider_key),
            None => row,
        };
        let inserted = self.store.insert(&mut txn, &[row]).await.map(|ids| ids.first().copied());
        match self.commit_written(txn, inserted).await {
            Ok(id) => {
                if failure.next.is_ok() {
                    self.wake_inbox();
                }
                Progress::Done(failure.logged(id))
            }
            Err(step) => step,
        }
    }
}
