//! The claim of a first delivery, and what is written at once if one exists already.

use crate::routes::Route;
use crate::runtime::{Ended, Pipeline, Wait};
use crate::store::{Claimed, Identity, StoreError};
use crate::{Delivery, Store};

use super::{Classified, Entry, Taken};

impl<S: Store> Pipeline<S> {
    /// Begins the transaction of a single delivery with its claim, and classifies the message; or without one, if its handler is
    /// natural and there is no order: then it is new. Unless it is new, the transaction contains only what
    /// [`answer`](Self::answer) commits. On an error, none is open.
    pub(crate) async fn begin_first(
        &self,
        route: &Route<S>,
        message: (&Identity, &Delivery),
    ) -> Result<(S::Txn, Taken), StoreError> {
        let claim = (!route.is_unclaimed).then_some(message.0);
        let (mut txn, claimed) = self.store.begin_first(route.timeout, claim).await?;
        if claim.is_none() {
            return Ok((txn, Taken::new()));
        }
        match self.classify_in(&mut txn, message, claimed).await {
            Ok(taken) => Ok((txn, taken)),
            Err(fault) => Err(self.abandon(txn, fault).await),
        }
    }

    /// Classifies a message by the result of its claim, and writes the row of a conflict.
    async fn classify_in(
        &self,
        txn: &mut S::Txn,
        message: (&Identity, &Delivery),
        claimed: Claimed,
    ) -> Result<Taken, StoreError> {
        let classified = self.classify(message, claimed);
        // A duplicate of a processed message needs no second look, no lock, and so no write.
        if claimed.is_new() || matches!(classified, Classified::Duplicate(Some(_))) {
            return Ok(classified.into());
        }
        let identity = message.0;
        let existing = self.store.existing_claims(txn, &[identity], true).await?.pop().flatten();
        let mut taken = Taken::from(self.classify(message, Claimed::Found(existing)));
        if let Classified::Conflict(error) = &taken.classified {
            taken.row = self.insert_conflict(txn, message, error).await?;
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
            _ => self.store.commit(txn).await.of_own(),
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
