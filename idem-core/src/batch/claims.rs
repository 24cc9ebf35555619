//! The claims of a batch.

use crate::record::Classified;
use crate::runtime::Pipeline;
use crate::store::{ClaimState, Claimed, Identity, StoreError};
use crate::{Delivery, Store};

use super::opening::Opened;

impl<S: Store> Pipeline<S> {
    /// Claims these messages, and classifies those that were claimed before.
    pub(super) async fn claims_of(
        &self,
        txn: &mut S::Txn,
        messages: &[(&Identity, &Delivery)],
    ) -> Result<Vec<Opened>, StoreError> {
        let identities: Vec<&Identity> = messages.iter().map(|(identity, _)| *identity).collect();
        let claimed = self.store.claim(txn, &identities, ClaimState::Processed).await?;
        let old = identities.iter().zip(&claimed).filter(|(_, claimed)| **claimed == Claimed::Found(None));
        let sought: Vec<&Identity> = old.map(|(identity, _)| *identity).collect();
        let known = if sought.is_empty() { Vec::new() } else { self.store.unlocked_claims(txn, &sought).await? };
        let mut known = known.into_iter();
        let classified = messages.iter().zip(claimed).map(|(message, claimed)| {
            let claimed = match claimed {
                Claimed::Found(None) => Claimed::Found(known.next().flatten()),
                read => read,
            };
            self.classify(*message, claimed)
        });
        Ok(classified.map(Opened::from).collect())
    }
}

impl From<Classified> for Opened {
    fn from(classified: Classified) -> Self {
        match classified {
            Classified::New => Self::New,
            Classified::Duplicate(Some(age)) => Self::Duplicate(age),
            // A message that is too old and a conflict need a row, a duplicate of a message in the inbox has to be
            // counted, and a removed claim has to be inserted again.
            Classified::TooOld(_) | Classified::Duplicate(None) | Classified::Conflict(_) | Classified::Gone => {
                Self::Single
            }
        }
    }
}
