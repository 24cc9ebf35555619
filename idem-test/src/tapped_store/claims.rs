//! The claims of a tapped store.

use std::time::Duration;

use idem_core::Store;
use idem_core::store::{ClaimState, Claimed, Claims, ExistingClaim, HandlerId, History, Identity, StoreError, Ticket};

use crate::harness::Crash;
use crate::trace::Step;

use super::doing::OF_CLAIM;
use super::{StoreTap, TappedStore, TappedTxn};

impl<S: Store, T: StoreTap> TappedStore<S, T> {
    /// Writes that a claim begins behind which the handler runs. One that waits for a row is a part of the commit.
    async fn claims(&self, identity: &Identity, state: ClaimState) -> Option<Step> {
        match state {
            ClaimState::Processed => self.begins("claimed", identity, String::new()).await,
            ClaimState::Waiting => None,
        }
    }
}

impl<S: Store, T: StoreTap> Claims for TappedStore<S, T> {
    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
        self.within.register(consumer, names).await
    }

    async fn rename(&self, consumer: &str, old: &str, new: &str) -> Result<bool, StoreError> {
        self.within.rename(consumer, old, new).await
    }

    async fn record_seen(&self, handlers: &[HandlerId]) -> Result<bool, StoreError> {
        self.tap.before("seen", &[]).await?;
        self.within.record_seen(handlers).await
    }

    async fn histories(&self, consumer: &str) -> Result<Vec<History>, StoreError> {
        self.within.histories(consumer).await
    }

    async fn record_history(&self, handler: HandlerId) -> Result<(), StoreError> {
        self.tap.statement(self.within.record_history(handler)).await
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, StoreError> {
        self.within.retention(handlers).await
    }

    async fn begin_with_claim(
        &self,
        handler_timeout: Duration,
        identity: &Identity,
    ) -> Result<(TappedTxn<S::Txn, T>, Claimed), StoreError> {
        self.tap.reach(Crash::BeforeBegin).await;
        self.tap.before("claim", identity.key.as_bytes()).await?;
        let step = self.claims(identity, ClaimState::Processed).await;
        let begun = self.tap.statement(self.within.begin_with_claim(handler_timeout, identity)).await;
        let (within, claimed) = match begun {
            Ok(begun) => begun,
            Err(fault) => {
                step.into_iter().for_each(Step::nothing);
                return Err(fault);
            }
        };
        let mut txn = self.txn(within);
        txn.doing.begun(step, identity, OF_CLAIM, claimed.is_new());
        if claimed.is_new() {
            self.tap.reach(Crash::AfterClaim).await;
        }
        Ok((txn, claimed))
    }

    async fn claim(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        identities: &[&Identity],
        state: ClaimState,
    ) -> Result<Vec<Claimed>, StoreError> {
        for identity in identities {
            self.tap.before("claim", identity.key.as_bytes()).await?;
        }
        let mut steps = Vec::with_capacity(identities.len());
        for identity in identities {
            steps.push(self.claims(identity, state).await);
        }
        let claimed = self.tap.statement(self.within.claim(&mut txn.within, identities, state)).await;
        for (place, (step, identity)) in steps.into_iter().zip(identities).enumerate() {
            let is_new = claimed.as_ref().is_ok_and(|claimed| claimed[place].is_new());
            txn.doing.begun(step, identity, OF_CLAIM, is_new);
        }
        let claimed = claimed?;
        if claimed.iter().any(Claimed::is_new) {
            self.tap.reach(Crash::AfterClaim).await;
        }
        Ok(claimed)
    }

    async fn existing_claims(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        identities: &[&Identity],
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        for identity in identities {
            self.tap.before("existing_claim", identity.key.as_bytes()).await?;
        }
        self.tap.statement(self.within.existing_claims(&mut txn.within, identities)).await
    }

    async fn unlocked_claims(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        ids: &[&Identity],
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        for identity in ids {
            self.tap.before("known", identity.key.as_bytes()).await?;
        }
        self.tap.statement(self.within.unlocked_claims(&mut txn.within, ids)).await
    }

    async fn reopen(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        identity: &Identity,
        left_by: &Ticket,
    ) -> Result<bool, StoreError> {
        self.tap.before("reopen", identity.key.as_bytes()).await?;
        self.tap.statement(self.within.reopen(&mut txn.within, identity, left_by)).await
    }
}
