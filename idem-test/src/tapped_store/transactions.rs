//! The transactions of a tapped store.

use std::time::Duration;

use idem_core::store::{
    CommitResult, ConnectionShare, Fate, RollbackResult, StoreError, Ticket, Transactions, TxnState,
};
use idem_core::{Error, Store};

use crate::harness::Crash;

use super::{StoreTap, TappedStore, TappedTxn};

impl<S: Store, T: StoreTap> Transactions for TappedStore<S, T> {
    type Txn = TappedTxn<S::Txn, T>;

    fn describe(&self) -> String {
        self.within.describe()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.tap.before("ping", &[]).await?;
        self.within.ping().await
    }

    fn share_connections(&self, connections: usize) -> Result<ConnectionShare, Error> {
        self.within.share_connections(connections)
    }

    async fn begin(&self, handler_timeout: Duration) -> Result<Self::Txn, StoreError> {
        self.tap.reach(Crash::BeforeBegin).await;
        let within = self.tap.statement(self.within.begin(handler_timeout)).await?;
        Ok(self.txn(within))
    }

    async fn begin_guarded(&self, handler_timeout: Duration) -> Result<Self::Txn, StoreError> {
        self.tap.reach(Crash::BeforeBegin).await;
        let within = self.tap.statement(self.within.begin_guarded(handler_timeout)).await?;
        self.tap.reach(Crash::AfterClaim).await;
        Ok(self.txn(within))
    }

    async fn guard(&self, txn: &mut Self::Txn) -> Result<(), StoreError> {
        self.tap.statement(self.within.guard(&mut txn.within)).await
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

    fn lost_race(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.within.lost_race(error)
    }

    fn deadlocked(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.within.deadlocked(error)
    }

    fn failed_with(&self, txn: &mut Self::Txn, error: &(dyn std::error::Error + 'static)) -> bool {
        self.within.failed_with(&mut txn.within, error)
    }

    async fn rollback(&self, txn: Self::Txn) -> Result<RollbackResult, StoreError> {
        self.tap.before("rollback", &[]).await?;
        let TappedTxn { within, doing, .. } = txn;
        self.alive().await;
        let ending = doing.rolls_back();
        let rolled_back = self.tap.statement(self.within.rollback(within)).await;
        ending.rolled_back(&rolled_back);
        rolled_back
    }

    fn ticket(&self, txn: &Self::Txn) -> Option<Ticket> {
        self.within.ticket(&txn.within)
    }

    async fn fate(&self, ticket: &Ticket) -> Result<Fate, StoreError> {
        self.tap.before("fate", &[]).await?;
        self.tap.statement(self.within.fate(ticket)).await
    }
}
