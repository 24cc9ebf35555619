//! The rows of the outbox that a transaction inserts.

use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::handle::Sqlite;
use crate::outbox::{StagedMessage, envelope};
use crate::store::OutboxId;

const STAGE: &str = r#"
INSERT INTO "idem_outbox_messages" (outbox_id, message_id, created_at, destination, key, envelope, payload)
VALUES "#;

/// How many rows one statement inserts: SQLite binds at most 32,766 values.
pub(super) const AT_ONCE: usize = 4000;

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
    // Many with one statement, so that none of them or all are inserted, even if the caller's future is dropped.
    for rows in rows.chunks(AT_ONCE) {
        let values = vec!["(?, ?, {now}, ?, ?, ?, ?)"; rows.len()].join(", ");
        let mut query = sqlx::query(store.prefix.sql(&format!("{STAGE}{values}")));
        // Each of another length is another text.
        query = query.persistent(rows.len() == 1);
        for NewRow { outbox, message } in rows {
            let id: Uuid = message.id();
            query = query.bind(outbox.number).bind(id).bind(message.to());
            query = query.bind(message.key().map_or(&[][..], |key| key.as_bytes()));
            query = query.bind(envelope::seal(message.message())).bind(message.payload().as_ref());
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}
