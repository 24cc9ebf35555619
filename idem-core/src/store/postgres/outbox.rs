//! The outbox: messages are staged in memory, and written in front of COMMIT.

use std::time::Duration;

use sqlx::Row as _;
use uuid::Uuid;

use crate::Error;
use crate::outbox::{Bell, StagedMessage};
use crate::store::{
    DeadOutgoing, LeaseAnswer, LeaseRequest, LocalMessage, NUMBERS, OutboxFound, OutboxId, OutboxRead, OutboxRows,
    OutboxStats, Page, PublishFailure, RowRef, StoreError, UnreadOutbox, number,
};

use super::local::Local;
use super::pool::FOR_A_RELAY;
use super::staged::Staged;
use super::{Postgres, Txn, outbox_sql};

impl OutboxRows for Postgres {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, Error> {
        let registered = async {
            for attempt in 0..2 * NUMBERS {
                // Twice each: another process may insert it after the statement has looked for it.
                let id = number(&[name], attempt / 2);
                let query = self.query(outbox_sql::REGISTER).bind(name).bind(id);
                if let Some(row) = self.ask(query).await?.first() {
                    return Ok(OutboxId { number: row.try_get(0)?, namespace: row.try_get(1)? });
                }
            }
            Err(StoreError::Unavailable("an outbox was deleted while it was registered".into()))
        };
        registered.await.map_err(|fault| Error::database(format!("could not register the outbox {name:?}"), fault))
    }

    fn stage(&self, txn: &mut Txn, outbox: OutboxId, messages: Vec<StagedMessage>) -> Result<(), StoreError> {
        match &mut txn.writes.staged {
            _ if messages.is_empty() => {}
            Some(staged) => staged.extend(messages),
            none => *none = Some(Box::new(Staged::new(outbox, messages))),
        }
        Ok(())
    }

    fn check_relay(&self) -> Result<(), Error> {
        let connections = self.0.connections;
        match connections >= FOR_A_RELAY {
            true => Ok(()),
            false => Err(Error::Config(format!(
                "a relay needs a store with at least 4 connections, so that its lease is renewed while it reads, and this \
                 one has {connections}: give the store `.connections(4)` or more"
            ))),
        }
    }

    fn stage_local(&self, txn: &mut Txn, messages: Vec<LocalMessage>) -> Result<(), StoreError> {
        txn.writes.local = (!messages.is_empty()).then(|| Box::new(Local::new(messages)));
        Ok(())
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.0.bell)
    }

    async fn lease_outbox(
        &self,
        outbox: OutboxId,
        token: Uuid,
        request: LeaseRequest,
    ) -> Result<LeaseAnswer, StoreError> {
        self.lease(outbox, token, request).await
    }

    async fn read_outbox(&self, outbox: OutboxId, read: OutboxRead<'_>) -> Result<OutboxFound, StoreError> {
        self.read(outbox, read).await
    }

    async fn delete_published(&self, outbox: OutboxId, token: Uuid, published: &[RowRef]) -> Result<u64, StoreError> {
        self.delete(outbox, token, published).await
    }

    async fn record_failures(
        &self,
        outbox: OutboxId,
        token: Uuid,
        failures: &[PublishFailure],
    ) -> Result<(), StoreError> {
        self.record(outbox, token, failures).await
    }

    async fn outbox_stats(&self, outbox: OutboxId, limit: u64) -> Result<OutboxStats, StoreError> {
        self.fill_level(outbox, limit).await
    }

    async fn unread_outboxes(&self, patience: Duration, limit: u64) -> Result<Vec<UnreadOutbox>, StoreError> {
        self.unread(patience, limit).await
    }

    async fn dead_outgoing(&self, outbox: OutboxId, page: Page) -> Result<Vec<DeadOutgoing>, StoreError> {
        self.dead_letters(outbox, page).await
    }

    async fn replay_outgoing(&self, outbox: OutboxId, id: i64) -> Result<bool, StoreError> {
        Ok(!self.ask(self.query(outbox_sql::REPLAY).bind(outbox.number).bind(id)).await?.is_empty())
    }

    async fn discard_outgoing(&self, outbox: OutboxId, id: i64) -> Result<bool, StoreError> {
        Ok(!self.ask(self.query(outbox_sql::DISCARD).bind(outbox.number).bind(id)).await?.is_empty())
    }
}
