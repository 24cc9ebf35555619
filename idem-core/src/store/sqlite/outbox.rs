//! The outbox: messages are staged in memory, and written in front of COMMIT.

use sqlx::sqlite::SqliteConnection;

use super::outbox_sql::NewRow;
use super::{Sqlite, Txn};
use crate::outbox::{Bell, StagedMessage};
use crate::store::{OutboxId, OutboxRows, StoreError};

const REGISTER: &str = r#"INSERT INTO "idem_outboxes" (name) VALUES (?1) ON CONFLICT DO NOTHING"#;

const NUMBER: &str = r#"SELECT id FROM "idem_outboxes" WHERE name = ?1"#;

/// Returns the number of an outbox, which it gets here if it has none.
pub(super) async fn intern(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<OutboxId, sqlx::Error> {
    let number = || sqlx::query_scalar(store.prefix.sql(NUMBER)).bind(name);
    if let Some(number) = number().fetch_optional(&mut *connection).await? {
        return Ok(OutboxId(number));
    }
    sqlx::query(store.prefix.sql(REGISTER)).bind(name).execute(&mut *connection).await?;
    Ok(OutboxId(number().fetch_one(connection).await?))
}

impl OutboxRows for Sqlite {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, StoreError> {
        let mut connection = self.file.writer().await?;
        let outbox = intern(self, connection.raw(), name).await.map_err(|error| self.file.fault(error))?;
        connection.give_back();
        Ok(outbox)
    }

    fn stage(&self, txn: &mut Txn, outbox: OutboxId, messages: Vec<StagedMessage>) -> Result<(), StoreError> {
        txn.stage(messages.into_iter().map(|message| NewRow { outbox, message }));
        Ok(())
    }

    fn bell(&self) -> Option<&Bell> {
        Some(&self.bell)
    }
}
