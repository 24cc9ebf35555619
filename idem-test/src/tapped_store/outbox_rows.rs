//! The outbox of a tapped store.

use std::time::Duration;

use idem_core::store::{
    Bell, DeadOutgoing, LaneLeases, LocalMessage, OutboxFound, OutboxId, OutboxRead, OutboxRows, OutboxStats, Page,
    PublishFailure, RowRef, StoreError,
};
use idem_core::{Error, StagedMessage, Store};
use uuid::Uuid;

use super::lanes::{deleted, deletes, read as was_read, records};
use super::taking::leased;
use super::{StoreTap, TappedStore, TappedTxn};

impl<S: Store, T: StoreTap> OutboxRows for TappedStore<S, T> {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, Error> {
        self.within.register_outbox(name).await
    }

    fn stage(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        outbox: OutboxId,
        messages: Vec<StagedMessage>,
    ) -> Result<(), StoreError> {
        self.within.stage(&mut txn.within, outbox, messages)
    }

    fn check_relay(&self) -> Result<(), Error> {
        self.within.check_relay()
    }

    fn stage_local(&self, txn: &mut TappedTxn<S::Txn, T>, messages: Vec<LocalMessage>) -> Result<(), StoreError> {
        self.within.stage_local(&mut txn.within, messages)
    }

    fn outbox_lanes(&self) -> u8 {
        self.within.outbox_lanes()
    }

    fn bell(&self) -> Option<&Bell> {
        self.within.bell()
    }

    async fn renew_lanes(&self, outbox: OutboxId, token: Uuid, lease: Duration) -> Result<LaneLeases, StoreError> {
        self.tap.before("renew_lanes", &[]).await?;
        self.tap.leases_lanes(outbox, token);
        let step = self.begins_any("lane-renewed").await;
        let leases = self.within.renew_lanes(outbox, token, lease).await;
        self.lanes.renewed(step, (outbox, token, lease), &leases);
        leases
    }

    async fn take_lanes(
        &self,
        outbox: OutboxId,
        token: Uuid,
        lease: Duration,
        limit: u32,
    ) -> Result<Vec<u8>, StoreError> {
        self.tap.before("take_lanes", &[]).await?;
        self.tap.leases_lanes(outbox, token);
        let step = self.begins_with("lane-taken", leased(lease)).await;
        let lanes = self.within.take_lanes(outbox, token, lease, limit).await;
        self.lanes.taken(step, (outbox, token, lease), &lanes);
        lanes
    }

    async fn give_lanes(&self, outbox: OutboxId, token: Uuid, lanes: Option<&[u8]>) -> Result<(), StoreError> {
        self.tap.before("give_lanes", &[]).await?;
        self.alive().await;
        self.lanes.given(self.tap.trace(), (outbox, token), lanes);
        self.within.give_lanes(outbox, token, lanes).await
    }

    async fn read_outbox(&self, outbox: OutboxId, read: OutboxRead<'_>) -> Result<OutboxFound, StoreError> {
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

    async fn live_relays(&self, outbox: OutboxId) -> Result<u32, StoreError> {
        self.tap.before("live_relays", &[]).await?;
        self.within.live_relays(outbox).await
    }

    async fn outbox_stats(&self, outbox: OutboxId, limit: u64) -> Result<OutboxStats, StoreError> {
        self.tap.before("outbox_stats", &[]).await?;
        self.within.outbox_stats(outbox, limit).await
    }

    async fn dead_outgoing(&self, outbox: OutboxId, page: Page) -> Result<Vec<DeadOutgoing>, StoreError> {
        self.within.dead_outgoing(outbox, page).await
    }

    async fn replay_outgoing(&self, outbox: OutboxId, id: i64) -> Result<bool, StoreError> {
        self.within.replay_outgoing(outbox, id).await
    }

    async fn discard_outgoing(&self, outbox: OutboxId, id: i64) -> Result<bool, StoreError> {
        self.within.discard_outgoing(outbox, id).await
    }
}
