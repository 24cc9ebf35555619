//! Claims one message, and writes what follows if a claim exists already.

use std::time::Duration;

use crate::routes::Route;
use crate::runtime::{HoldReason, Pipeline, Progress};
use crate::store::{ClaimState, Claimed, Identity, NewRow, StoreError};
use crate::{Delivery, Reason, Store};

use super::classify::{Classified, DeadByClaim};
use super::committed::committed;

impl<S: Store> Pipeline<S> {
    /// Begins the transaction of a first delivery: with its claim, or without one if the handler is natural and there is no
    /// order. Then every delivery is new.
    pub(crate) async fn begin_first(
        &self,
        route: &Route<S>,
        delivery: &Delivery,
        identity: &Identity,
    ) -> Result<(S::Txn, Classified), Progress> {
        if !route.is_unclaimed {
            return self.claim(route.timeout, delivery, identity, ClaimState::Processed).await;
        }
        let begun = async {
            self.record_history(route).await?;
            self.store.begin_guarded(route.timeout).await
        };
        begun.await.map(|txn| (txn, Classified::New)).map_err(|fault| self.outage.hold_for(fault))
    }

    /// Records that this handler processes messages, before the first of them that leaves no claim. Without any record, a
    /// consumer whose place at the broker is gone would look like a new one.
    pub(crate) async fn record_history(&self, route: &Route<S>) -> Result<(), StoreError> {
        route.history.get_or_try_init(|| self.store.record_history(route.id)).await.copied()
    }

    /// Begins a transaction with the claim, bounded by `timeout`, and classifies the message. Unless it is new, the
    /// transaction contains only what [`answer`](Self::answer) commits. On error, returns the [`Progress`] that holds
    /// the message.
    pub(crate) async fn claim(
        &self,
        timeout: Duration,
        delivery: &Delivery,
        identity: &Identity,
        state: ClaimState,
    ) -> Result<(S::Txn, Classified), Progress> {
        let begun = self.store.begin_with_claim(timeout, identity, state).await;
        let (mut txn, claimed) = begun.map_err(|fault| self.outage.hold_for(fault))?;
        match self.classify_in(&mut txn, (identity, delivery), claimed).await {
            Ok(classified) => Ok((txn, classified)),
            Err(fault) => Err(self.abandon(txn, fault).await),
        }
    }

    /// Classifies a message by the result of its claim. Counts a duplicate of a dead letter, or writes the row
    /// of a conflict.
    async fn classify_in(
        &self,
        txn: &mut S::Txn,
        message: (&Identity, &Delivery),
        claimed: Claimed,
    ) -> Result<Classified, StoreError> {
        let classified = self.classify(message, claimed);
        // A duplicate of a processed message needs no second look, no lock, and so no write.
        if claimed.is_new() || matches!(classified, Classified::Duplicate(Some(_))) {
            return Ok(classified);
        }
        let identity = message.0;
        let existing = self.store.existing_claims(txn, &[identity]).await?.pop().flatten();
        let mut classified = self.classify(message, Claimed::Found(existing));
        match &mut classified {
            Classified::Duplicate(None) => self.store.count_duplicates(txn, &[identity]).await?,
            Classified::Conflict(dead) => self.insert_dead(txn, message, Reason::Conflict, dead).await?,
            _ => {}
        }
        Ok(classified)
    }

    /// Ends the transaction of a message that is not new, and returns its outcome: commits what was written for it.
    /// Nothing is written for a duplicate of a processed message, or if the claim is gone.
    pub(crate) async fn answer(&self, txn: S::Txn, route: &Route<S>, classified: &Classified) -> Progress {
        let ended = match classified {
            Classified::Duplicate(Some(_)) | Classified::Gone => self.store.rollback(txn).await.map(drop),
            _ => committed(self.store.commit(txn).await),
        };
        if let Err(fault) = ended {
            return self.outage.hold_for(fault);
        }
        classified.tell();
        classified.outcome(&route.meters).map_or(Progress::Hold(HoldReason::Again), Progress::Done)
    }

    /// Writes the row of a message that is dead by its claim alone.
    pub(super) async fn insert_dead(
        &self,
        txn: &mut S::Txn,
        (identity, delivery): (&Identity, &Delivery),
        reason: Reason,
        dead: &mut DeadByClaim,
    ) -> Result<(), StoreError> {
        let row = NewRow::new(identity, delivery, Err(reason)).with_attempts(0, &dead.error);
        dead.row = self.store.insert(txn, &[row]).await?.pop();
        Ok(())
    }
}
