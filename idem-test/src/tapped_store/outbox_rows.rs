//! The outbox of a tapped store.

use std::time::Duration;

use idem_core::store::{
    By, DeadOutgoing, LeaseAnswer, LeaseRequest, LocalMessage, OutboxFound, OutboxId, OutboxRead, OutboxRows,
    OutboxStats, Page, PublishFailure, RowRef, StoreError, UnreadOutbox,
};
use idem_core::{Error, StagedMessage, Store};
use uuid::Uuid;

use super::fetching::leased;
use super::relay::{deleted, deletes, read as was_read, records};
use super::{StoreTap, TappedStore, TappedTxn};

impl<S: Store, T: StoreTap> OutboxRows for TappedStore<S, T> {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, Error> {
        self.within.register_outbox(name).await
    }

    fn stage(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        outbox: OutboxId,
        outgoing: Vec<StagedMessage>,
        local: Vec<LocalMessage>,
    ) {
        self.within.stage(&mut txn.within, outbox, outgoing, local);
    }

    async fn lease_outbox(
        &self,
        outbox: OutboxId,
        token: Uuid,
        request: LeaseRequest,
    ) -> Result<LeaseAnswer, StoreError> {
        self.tap.before("lease_outbox", &[]).await?;
        match request {
            LeaseRequest::Hold(lease) => {
                self.tap.leases_outbox(outbox, token);
                let name = self.relays.step(token);
                let step = self.begins_with(name, leased(lease)).await;
                let answer = self.within.lease_outbox(outbox, token, request).await;
                self.relays.answered((name, step), (outbox, token, lease), &answer);
                answer
            }
            LeaseRequest::Release => {
                self.alive().await;
                self.relays.given(self.tap.trace(), (outbox, token));
                self.within.lease_outbox(outbox, token, request).await
            }
            LeaseRequest::Show => self.within.lease_outbox(outbox, token, request).await,
        }
    }

    async fn read_outbox(&self, outbox: OutboxId, read: &OutboxRead) -> Result<OutboxFound, StoreError> {
        self.tap.before("read_outbox", &[]).await?;
        let step = self.begins_any("read").await;
        let found = self.within.read_outbox(outbox, read).await;
        was_read(step, outbox, &found);
        found
    }

    async fn delete_published(&self, outbox: OutboxId, token: Uuid, published: &[RowRef]) -> Result<u64, StoreError> {
        self.tap.before("delete_published", &[]).await?;
        self.alive().await;
        let steps = self.tap.trace().map(|process| deletes(process, outbox, published));
        let delete = self.within.delete_published(outbox, token, published);
        let answer = self.tap.watched("delete_published", delete).await;
        deleted(steps.unwrap_or_default(), &answer);
        let count = answer?;
        // The answer may be lost.
        self.tap.before("published_is_deleted", &[]).await?;
        Ok(count)
    }

    async fn record_failures(
        &self,
        outbox: OutboxId,
        token: Uuid,
        failures: &[PublishFailure],
    ) -> Result<(), StoreError> {
        self.tap.before("record_failures", &[]).await?;
        self.alive().await;
        self.tap.trace().into_iter().for_each(|process| records(process, outbox, failures));
        self.within.record_failures(outbox, token, failures).await?;
        // As above.
        self.tap.before("failures_are_recorded", &[]).await
    }

    async fn outbox_stats(&self, outbox: OutboxId, limit: u64) -> Result<OutboxStats, StoreError> {
        self.tap.before(if limit == 0 { "relay_seen" } else { "outbox_stats" }, &[]).await?;
        self.within.outbox_stats(outbox, limit).await
    }

    async fn unread_outboxes(&self, patience: Duration, limit: u64) -> Result<Vec<UnreadOutbox>, StoreError> {
        self.within.unread_outboxes(patience, limit).await
    }

    async fn dead_outgoing(&self, outbox: OutboxId, page: Page) -> Result<Vec<DeadOutgoing>, StoreError> {
        self.within.dead_outgoing(outbox, page).await
    }

    async fn remove_dead_outgoing(
        &self,
        outbox: OutboxId,
        ids: &[i64],
        again: bool,
        by: &By,
    ) -> Result<Vec<i64>, StoreError> {
        self.within.remove_dead_outgoing(outbox, ids, again, by).await
    }
}
