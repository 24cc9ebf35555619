//! The claims of a batch. The deliveries of natural handlers have none.

use crate::routes::Route;
use crate::runtime::Pipeline;
use crate::store::{ClaimState, Claimed, Identity, StoreError};
use crate::take_over::Classified;
use crate::{Delivery, Store};

impl<S: Store> Pipeline<S> {
    /// Claims these messages, and classifies those that were claimed before.
    async fn claims_of(
        &self,
        txn: &mut S::Txn,
        messages: &[(&Identity, &Delivery)],
    ) -> Result<Vec<Classified>, StoreError> {
        let identities: Vec<&Identity> = messages.iter().map(|(identity, _)| *identity).collect();
        let claimed = self.store.claim(txn, &identities, ClaimState::Processed).await?;
        let old = identities.iter().zip(&claimed).filter(|(_, claimed)| **claimed == Claimed::Found(None));
        let sought: Vec<&Identity> = old.map(|(identity, _)| *identity).collect();
        let known =
            if sought.is_empty() { Vec::new() } else { self.store.existing_claims(txn, &sought, false).await? };
        let mut known = known.into_iter();
        let classified = messages.iter().zip(claimed).map(|(message, claimed)| {
            let claimed = match claimed {
                Claimed::Found(None) => Claimed::Found(known.next().flatten()),
                read => read,
            };
            self.classify(*message, claimed)
        });
        Ok(classified.collect())
    }

    /// Claims all messages except those of natural handlers, which are always new.
    pub(super) async fn claims(
        &self,
        txn: &mut S::Txn,
        messages: &[(&Identity, &Delivery)],
    ) -> Result<Vec<Classified>, StoreError> {
        let is_unclaimed = |(identity, _): &(&Identity, &Delivery)| self.routes.is_unclaimed(identity.handler);
        let claiming: Vec<_> = messages.iter().filter(|message| !is_unclaimed(message)).copied().collect();
        let mut claimed = match claiming.is_empty() {
            true => Vec::new(),
            false => self.claims_of(txn, &claiming).await?,
        }
        .into_iter();
        if claiming.len() < messages.len() {
            // All claims may be duplicates, and then none of them guards the transaction.
            self.store.claim(txn, &[], ClaimState::Processed).await?;
        }
        let opened = |message| if is_unclaimed(message) { Some(Classified::New) } else { claimed.next() };
        Ok(messages.iter().filter_map(opened).collect())
    }

    /// Records that the natural handlers of these messages process messages, before the first of them.
    pub(super) async fn record_histories(&self, messages: &[(&Identity, &Delivery)]) -> Result<(), StoreError> {
        for (identity, _) in messages {
            if let Some(route) = self.routes.get(identity.handler).filter(|route| route.is_unclaimed) {
                self.record_history(route).await?;
            }
        }
        Ok(())
    }
}

/// Returns whether a delivery of this handler may share a transaction. One that has no claim may run twice: if another
/// handler runs COMMIT, all messages without claims run again. A handler that then finds its own writes could leave out
/// what it has staged in the first run, which that COMMIT has not written.
pub(super) fn may_share<S: Store>(route: &Route<S>) -> bool {
    !(route.is_unclaimed && route.handler.facts().stages)
}
