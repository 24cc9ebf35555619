//! Writes the inbox row of one message that has a key: it runs later, or it is dead.

use crate::execute::Failure;
use crate::runtime::{HoldReason, Pipeline, Progress};
use crate::store::Identity;
use crate::{Delivery, Outcome, Reason, Store};

use super::classify::Classified;
use super::entry::Entry;

impl<S: Store> Pipeline<S> {
    /// Stores a message before it runs. A process may have died on a redelivered one, and only the inbox counts that.
    pub(crate) async fn enqueue(&self, delivery: &Delivery, identity: &Identity) -> Progress {
        self.record(Entry::due(identity.clone(), delivery)).await
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
        let step = self.record(Entry::failed(identity.clone(), delivery, charge)).await;
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

    /// Writes the claim first, then the row, in one transaction.
    async fn record(&self, entry: Entry<'_>) -> Progress {
        let failure = &*entry.failure;
        let taken = match self.store_many(std::slice::from_ref(&entry)).await {
            Ok(taken) => taken.into_iter().next(),
            Err(step) => return step,
        };
        let Some(taken) = taken else { return Progress::Stopped };
        match &taken.classified {
            Classified::New => Progress::Done(failure.logged(taken.row)),
            // One that is already dead keeps its reason.
            Classified::TooOld(_) if failure.next.is_err() => Progress::Done(failure.logged(taken.row)),
            known => {
                taken.tell(failure.attempts);
                let outcome = known.outcome(self.routes.meters(entry.identity.handler));
                outcome.map_or(Progress::Hold(HoldReason::Again), Progress::Done)
            }
        }
    }
}
