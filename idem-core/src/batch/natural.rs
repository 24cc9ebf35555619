//! The deliveries of natural handlers in a batch, which have no claims.

use std::time::Duration;

use crate::runtime::Pipeline;
use crate::store::{Identity, StoreError};
use crate::{Delivery, Store};

use super::item::Item;
use super::opening::{Opened, Opening};

impl<S: Store> Pipeline<S> {
    /// Begins a transaction for these deliveries, whose statements may take this long.
    pub(super) async fn begin_claims(
        &self,
        timeout: Duration,
        messages: &[(&Identity, &Delivery)],
    ) -> Result<S::Txn, StoreError> {
        let mut has_claims = false;
        for (identity, _) in messages {
            match self.routes.get(identity.handler).filter(|route| route.handler.is_natural()) {
                Some(route) => self.record_history(route).await?,
                None => has_claims = true,
            }
        }
        match has_claims {
            true => self.store.begin(timeout).await,
            false => self.store.begin_guarded(timeout).await,
        }
    }

    /// Claims all messages except those of natural handlers, which are always new.
    pub(super) async fn claims(
        &self,
        txn: &mut S::Txn,
        messages: &[(&Identity, &Delivery)],
    ) -> Result<Vec<Opened>, StoreError> {
        let is_natural = |(identity, _): &(&Identity, &Delivery)| self.routes.is_natural(identity.handler);
        let claiming: Vec<_> = messages.iter().filter(|message| !is_natural(message)).copied().collect();
        let mut claimed = match claiming.is_empty() {
            true => Vec::new(),
            false => self.claims_of(txn, &claiming).await?,
        }
        .into_iter();
        if claiming.len() < messages.len() {
            // All claims may be duplicates, and then none of them guards the transaction.
            self.store.guard(txn).await?;
        }
        let opened = |message| if is_natural(message) { Some(Opened::New) } else { claimed.next() };
        Ok(messages.iter().filter_map(opened).collect())
    }
}

/// Returns those of the new items that have claims: a natural handler's row has one, and its delivery has none.
pub(super) fn claimed<S: Store>(items: &[Item<'_, S>], new: &[usize], opening: Opening<'_>) -> Vec<usize> {
    let all = matches!(opening, Opening::Rows(_));
    new.iter().copied().filter(|place| all || !items[*place].route.handler.is_natural()).collect()
}
