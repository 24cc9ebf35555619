//! The claim of a first delivery, and what is written at once if one exists already.

use crate::routes::Route;
use crate::runtime::{Ended, Pipeline, Wait};
use crate::store::{Claimed, Identity, StoreError};
use crate::{Delivery, Store};

use super::{Classified, Entry, Taken, committed};

impl<S: Store> Pipeline<S> {
    /// Begins the transaction of a first delivery: with its claim, or without one if the handler is natural and there is no
    /// order. Then every delivery is new. Unless it is new, the transaction contains only what [`answer`](Self::answer)
    /// commits. The error parks the message.
    pub(crate) async fn begin_first(
        &self,
        route: &Route<S>,
        delivery: &Delivery,
        identity: &Identity,
    ) -> Result<(S::Txn, Taken), Ended> {
        if !route.is_unclaimed {
            return self.claim(route, delivery, identity).await;
        }
        let begun = async {
            self.record_history(route).await?;
            self.store.begin_guarded(route.timeout).await
        };
        begun.await.map(|txn| (txn, Taken::new())).map_err(|fault| self.outage.hold_for(fault))
    }

    /// Records that this handler processes messages, before the first of them that leaves no claim. Without any record, a
    /// consumer whose place at the broker is gone would look like a new one.
    pub(crate) async fn record_history(&self, route: &Route<S>) -> Result<(), StoreError> {
        route.history.get_or_try_init(|| self.store.record_history(route.id)).await.copied()
    }

    /// Begins a transaction with the claim, and classifies the message.
    async fn claim(
        &self,
        route: &Route<S>,
        delivery: &Delivery,
        identity: &Identity,
    ) -> Result<(S::Txn, Taken), Ended> {
        let begun = self.store.begin_with_claim(route.timeout, identity).await;
        let (mut txn, claimed) = begun.map_err(|fault| self.outage.hold_for(fault))?;
        match self.classify_in(&mut txn, (identity, delivery), claimed).await {
            Ok(taken) => Ok((txn, taken)),
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
    ) -> Result<Taken, StoreError> {
        let classified = self.classify(message, claimed);
        // A duplicate of a processed message needs no second look, no lock, and so no write.
        if claimed.is_new() || matches!(classified, Classified::Duplicate(Some(_))) {
            return Ok(Taken { classified, row: None });
        }
        let identity = message.0;
        let existing = self.store.existing_claims(txn, &[identity]).await?.pop().flatten();
        let mut taken = Taken { classified: self.classify(message, Claimed::Found(existing)), row: None };
        match &taken.classified {
            Classified::Duplicate(None) => self.store.count_duplicates(txn, &[identity]).await?,
            Classified::Conflict(error) => taken.row = self.insert_conflict(txn, message, error).await?,
            _ => {}
        }
        Ok(taken)
    }

    /// Ends the transaction of a first delivery that is not new, and returns its outcome: commits what was written for it.
    /// Nothing is written for a duplicate of a processed message, or if the claim is gone. The claim of this transaction
    /// would mark a message that is too old as processed, so another transaction takes it over.
    pub(crate) async fn answer(
        &self,
        txn: S::Txn,
        route: &Route<S>,
        (identity, delivery): (&Identity, &Delivery),
        found: &Taken,
    ) -> Ended {
        let ended = match &found.classified {
            Classified::TooOld(_) | Classified::Duplicate(Some(_)) | Classified::Gone => {
                self.store.rollback(txn).await.map(drop)
            }
            _ => committed(self.store.commit(txn).await),
        };
        if let Err(fault) = ended {
            return self.outage.hold_for(fault);
        }
        if matches!(found.classified, Classified::TooOld(_)) {
            return self.store(&Entry::due(identity.clone(), delivery)).await;
        }
        found.tell(0);
        found.classified.outcome(&route.meters).map_or(Ended::Park(Wait::Claim), Ended::Done)
    }
}
