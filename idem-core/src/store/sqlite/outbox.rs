//! The outbox: messages are staged in memory, and written in front of COMMIT.

use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::outbox_sql::NewRow;
use super::{Sqlite, Txn};
use crate::Error;
use crate::outbox::{Bell, StagedMessage};
use crate::store::{
    DeadOutgoing, LeaseAnswer, LeaseRequest, LocalMessage, NUMBERS, OutboxFound, OutboxId, OutboxRead, OutboxRows,
    OutboxStats, Page, PublishFailure, RowRef, StoreError, UnreadOutbox, number,
};

const REGISTER: &str = r#"
INSERT INTO "idem_outboxes" (id, name, namespace) VALUES (?3, ?1, ?2) ON CONFLICT DO NOTHING"#;

const FIND: &str = r#"SELECT id, namespace FROM "idem_outboxes" WHERE name = ?1"#;

/// Returns the row of an outbox, which is made here if there is none.
pub(super) async fn intern(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<OutboxId, sqlx::Error> {
    let find = || sqlx::query_as(store.prefix.sql(FIND)).bind(name);
    for attempt in 0..NUMBERS {
        if let Some((number, namespace)) = find().fetch_optional(&mut *connection).await? {
            return Ok(OutboxId { number, namespace });
        }
        let register = sqlx::query(store.prefix.sql(REGISTER)).bind(name).bind(Uuid::new_v4());
        register.bind(number(&[name], attempt)).execute(&mut *connection).await?;
    }
    let (number, namespace) = find().fetch_one(&mut *connection).await?;
    Ok(OutboxId { number, namespace })
}

impl OutboxRows for Sqlite {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, Error> {
        let failed = |fault: StoreError| Error::database(format!("could not register the outbox {name:?}"), fault);
        let mut connection = self.file.writer().await.map_err(failed)?;
        let outbox = intern(self, connection.raw(), name).await.map_err(|error| failed(self.file.fault(error)))?;
        connection.give_back();
        Ok(outbox)
    }

    fn stage(&self, txn: &mut Txn, outbox: OutboxId, messages: Vec<StagedMessage>) -> Result<(), StoreError> {
        txn.stage(messages.into_iter().map(|message| NewRow { outbox, message }));
        Ok(())
    }

    fn stage_local(&self, txn: &mut Txn, messages: Vec<LocalMessage>) -> Result<(), StoreError> {
        txn.stage_local(messages);
        Ok(())
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.bell)
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
        self.read_rows(outbox, read).await
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
        self.replay_dead(outbox, id).await
    }

    async fn discard_outgoing(&self, outbox: OutboxId, id: i64) -> Result<bool, StoreError> {
        self.discard_dead(outbox, id).await
    }
}
