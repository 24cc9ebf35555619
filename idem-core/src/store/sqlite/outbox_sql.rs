//! The rows of the outbox that a transaction inserts.

use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::handle::Sqlite;
use crate::outbox::{StagedMessage, envelope};
use crate::store::OutboxId;

/// An outbox has one lane, because the file has one writer.
pub(super) const LANE: i64 = 0;

const STAGE: &str = r#"
INSERT INTO "idem_outbox_messages" (outbox_id, lane, message_id, created_at, destination, key, envelope, payload)
VALUES (?1, ?2, ?3, {now}, ?4, ?5, ?6, ?7)"#;

/// A row to be inserted.
pub(super) struct NewRow {
    pub(super) outbox: OutboxId,
    pub(super) message: StagedMessage,
}

/// Inserts the rows in their order.
pub(super) async fn insert(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    rows: &[NewRow],
) -> Result<(), sqlx::Error> {
    for NewRow { outbox, message } in rows {
        let id: Uuid = message.id();
        sqlx::query(store.prefix.sql(STAGE))
            .bind(outbox.number)
            .bind(LANE)
            .bind(id)
            .bind(message.to())
            .bind(message.key().map_or(&[][..], |key| key.as_bytes()))
            .bind(envelope::seal(message.message()))
            .bind(message.payload().as_ref())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
