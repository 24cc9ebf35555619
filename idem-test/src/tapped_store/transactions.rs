//! The transactions of a tapped store, and the claims in them.

use std::time::Duration;

use idem_core::Store;
use idem_core::store::{
    ClaimState, Claimed, CommitResult, ErrorClass, ExistingClaim, Identity, StoreError, StoreFacts, Transactions,
    TxnHandle, TxnOutcome, TxnState,
};

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

impl<S: Store, T: StoreTap> Transactions for TappedStore<S, T> {
    type Txn = TappedTxn<S::Txn, T>;

    fn facts(&self) -> &StoreFacts {
        self.within.facts()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.tap.before("ping", &[]).await?;
        self.within.ping().await
    }

    async fn begin(&self, handler_timeout: Duration) -> Result<Self::Txn, StoreError> {
        self.tap.reach(Crash::BeforeBegin).await;
        let within = self.tap.statement(self.within.begin(handler_timeout)).await?;
        Ok(self.txn(within))
    }

    async fn begin_first(
        &self,
        handler_timeout: Duration,
        claim: Option<&Identity>,
    ) -> Result<(Self::Txn, Claimed), StoreError> {
        self.tap.reach(Crash::BeforeBegin).await;
        let Some(identity) = claim else {
            let (within, claimed) = self.tap.statement(self.within.begin_first(handler_timeout, None)).await?;
            self.tap.reach(Crash::AfterClaim).await;
            return Ok((self.txn(within), claimed));
        };
        self.tap.before("claim", identity.key.as_bytes()).await?;
        let step = self.claims(identity, ClaimState::Processed).await;
        let begun = self.tap.statement(self.within.begin_first(handler_timeout, claim)).await;
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
        lock: bool,
    ) -> Result<Vec<Option<ExistingClaim>>, StoreError> {
        for identity in identities {
            self.tap.before(if lock { "existing_claim" } else { "known" }, identity.key.as_bytes()).await?;
        }
        self.tap.statement(self.within.existing_claims(&mut txn.within, identities, lock)).await
    }

    async fn reopen(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        identity: &Identity,
        left_by: &TxnHandle,
    ) -> Result<bool, StoreError> {
        self.tap.before("reopen", identity.key.as_bytes()).await?;
        self.tap.statement(self.within.reopen(&mut txn.within, identity, left_by)).await
    }

    async fn check_between(&self, txn: &mut Self::Txn) -> Result<TxnState, StoreError> {
        self.within.check_between(&mut txn.within).await
    }

    async fn commit(&self, txn: Self::Txn) -> CommitResult {
        self.tap.reach(Crash::BeforeCommit).await;
        let TappedTxn { within, doing, .. } = txn;
        self.alive().await;
        let ending = doing.commits();
        let committed = self.tap.commit(self.within.commit(within)).await;
        ending.committed(&committed);
        self.tap.reach(Crash::AfterCommit).await;
        // The answer may be lost.
        match self.tap.before("committed", &[]).await {
            Ok(()) => committed,
            Err(fault) => CommitResult::Unknown(fault),
        }
    }

    fn classify_error(&self, txn: Option<&mut Self::Txn>, error: &(dyn std::error::Error + 'static)) -> ErrorClass {
        self.within.classify_error(txn.map(|txn| &mut txn.within), error)
    }

    async fn rollback(&self, txn: Self::Txn) -> Result<TxnOutcome, StoreError> {
        self.tap.before("rollback", &[]).await?;
        let TappedTxn { within, doing, .. } = txn;
        self.alive().await;
        let ending = doing.rolls_back();
        let rolled_back = self.tap.statement(self.within.rollback(within)).await;
        ending.rolled_back(&rolled_back);
        rolled_back
    }

    fn txn_handle(&self, txn: &Self::Txn) -> Option<TxnHandle> {
        self.within.txn_handle(&txn.within)
    }

    async fn txn_outcome(&self, txn_handle: &TxnHandle) -> Result<TxnOutcome, StoreError> {
        self.tap.before("txn_outcome", &[]).await?;
        self.tap.statement(self.within.txn_outcome(txn_handle)).await
    }
}
