//! Begins transactions: with the claims of deliveries, or with the starts of inbox rows. The deliveries of natural handlers have
//! no claims.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::runtime::Pipeline;
use crate::store::{ClaimState, Claimed, HandlerMark, Identity, Row, StoreError};
use crate::take_over::{Classified, Taken};
use crate::{Delivery, Store};

use super::{Found, Work};

impl<S: Store> Pipeline<S> {
    /// Begins the transaction of these works, and returns what each of them is. On an error, none is open.
    pub(super) async fn open(&self, works: &mut [Work<'_, S>]) -> Result<(S::Txn, Found), StoreError> {
        // Each call has the timeout of its handler. The limits of the transaction must leave room for every call.
        let longest = works.iter().map(|work| work.route.timeout).max().unwrap_or_default();
        if works[0].row.is_some() {
            let rows: SmallVec<[&Row; 1]> = works.iter().filter_map(|work| work.row).collect();
            return self.start(longest, &rows).await;
        }
        for Work { route, .. } in works.iter_mut() {
            if route.is_unclaimed {
                // Before the first message that leaves no claim: without any record, a consumer whose place at the broker is gone
                // would look like a new one.
                let record = || async { self.store.mark(&[route.id], HandlerMark::Processes).await.map(drop) };
                route.history.get_or_try_init(record).await?;
            }
        }
        if let [work] = works {
            let (txn, classified) = self.begin_first(work.route, (&work.identity, work.delivery)).await?;
            return Ok((txn, smallvec![classified.into()]));
        }
        let messages: Vec<_> = works.iter().map(Work::message).collect();
        let mut txn = self.store.begin(longest).await?;
        match self.claims(&mut txn, &messages).await {
            Ok(found) => Ok((txn, found)),
            Err(fault) => Err(self.abandon(txn, fault).await),
        }
    }

    /// Starts the rows: deletes them and dates their claims. A row whose lease was lost is gone.
    async fn start(&self, timeout: Duration, rows: &[&Row]) -> Result<(S::Txn, Found), StoreError> {
        // All connections may be in use for longer than the lease. From the start on, the rows are locked.
        let held = self.leases.hold(rows.iter().copied());
        let mut txn = self.store.begin(timeout).await?;
        drop(held);
        let found = |started| Taken::from(if started { Classified::New } else { Classified::Gone });
        match self.store.start(&mut txn, rows, ClaimState::Processed).await {
            Ok(started) => Ok((txn, started.into_iter().map(found).collect())),
            Err(fault) => Err(self.abandon(txn, fault).await),
        }
    }

    /// Claims all messages except those of natural handlers, which are always new, and classifies those that were claimed before.
    async fn claims(&self, txn: &mut S::Txn, messages: &[(&Identity, &Delivery)]) -> Result<Found, StoreError> {
        let is_unclaimed = |identity: &Identity| self.routes.is_unclaimed(identity.handler);
        let all = messages.iter().map(|(identity, _)| *identity);
        let claiming: Vec<&Identity> = all.filter(|identity| !is_unclaimed(identity)).collect();
        let mut claimed = Vec::new();
        if !claiming.is_empty() {
            claimed = self.store.claim(txn, &claiming, ClaimState::Processed).await?;
        }
        let old = claiming.iter().zip(&claimed).filter(|(_, claimed)| **claimed == Claimed::Found(None));
        let sought: Vec<&Identity> = old.map(|(identity, _)| *identity).collect();
        let known =
            if sought.is_empty() { Vec::new() } else { self.store.existing_claims(txn, &sought, false).await? };
        if claiming.len() < messages.len() {
            // All claims may be duplicates, and then none of them guards the transaction.
            self.store.claim(txn, &[], ClaimState::Processed).await?;
        }
        let (mut claimed, mut known) = (claimed.into_iter(), known.into_iter());
        let found = |message: &(&Identity, &Delivery)| {
            if is_unclaimed(message.0) {
                return Some(Taken::new());
            }
            let claimed = match claimed.next()? {
                Claimed::Found(None) => Claimed::Found(known.next().flatten()),
                read => read,
            };
            Some(self.classify(*message, claimed).into())
        };
        Ok(messages.iter().filter_map(found).collect())
    }
}
