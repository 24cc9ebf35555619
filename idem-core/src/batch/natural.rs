//! The deliveries of natural handlers in a batch, which have no claims.

use crate::runtime::Pipeline;
use crate::store::{Identity, StoreError};
use crate::{Delivery, Store};

use super::item::Item;
use super::opening::{Opened, Opening};

impl<S: Store> Pipeline<S> {
    /// Claims all messages except those of natural handlers, which are always new.
    pub(super) async fn claims(
        &self,
        txn: &mut S::Txn,
        messages: &[(&Identity, &Delivery)],
    ) -> Result<Vec<Opened>, StoreError> {
        let is_unclaimed = |(identity, _): &(&Identity, &Delivery)| self.routes.is_unclaimed(identity.handler);
        let claiming: Vec<_> = messages.iter().filter(|message| !is_unclaimed(message)).copied().collect();
        let mut claimed = match claiming.is_empty() {
            true => Vec::new(),
            false => self.claims_of(txn, &claiming).await?,
        }
        .into_iter();
        if claiming.len() < messages.len() {
            // All claims may be duplicates, and then none of them guards the transaction.
            self.store.guard(txn).await?;
        }
        let opened = |message| if is_unclaimed(message) { Some(Opened::New) } else { claimed.next() };
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

/// Returns whether this item has a claim if it is new: a natural handler's row has one, and its delivery has none.
pub(super) fn has_claim<S: Store>(item: &Item<'_, S>, opening: Opening<'_>) -> bool {
    matches!(opening, Opening::Rows(_)) || !item.route.is_unclaimed
}
