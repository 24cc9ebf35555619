//! Inbox rows: inserted, taken, started, and their outcomes.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::sql::{duration, ids, millis, rows, since_epoch};
use super::{Sqlite, Txn, inbox_sql};
use crate::Reason;
use crate::store::{
    CRASHED, CRASHED_AT_ONCE, CRASHED_LEASES, CallAnswer, DueRows, HandlerId, Identity, InboxRows, MAX_BREAKS,
    MAX_STARTS, NewRow, Row, RowKind, RowResult, StoreError, TakeLimit, envelope, error_text,
};

pub(super) async fn insert(store: &Sqlite, txn: &mut Txn, row: &NewRow<'_>) -> Result<i64, StoreError> {
    let query = sqlx::query_scalar(store.prefix.sql(inbox_sql::INSERT))
        .bind(row.identity.handler.0)
        .bind(row.identity.key.as_bytes())
        .bind(row.identity.fingerprint.as_bytes())
        .bind(row.delivery.payload().as_ref())
        .bind(envelope::seal(row.delivery))
        .bind(row.attempts)
        .bind(error_text(row.error))
        .bind(row.state.err().map(Reason::as_str))
        .bind(row.state.map_or(0, millis))
        .bind(row.provider_key)
        .bind(row.answer.map(CallAnswer::as_bytes))
        .bind(row.call_name)
        .bind(row.called_at.map(since_epoch))
        .bind(row.calls);
    query.fetch_one(txn.connection()).await.map_err(|error| store.file.fault_of_message(error))
}

pub(super) async fn remove(store: &Sqlite, txn: &mut Txn, row: &Row) -> Result<bool, StoreError> {
    let query = sqlx::query(store.prefix.sql(inbox_sql::REMOVE)).bind(row.id).bind(row.locked_by);
    let done = query.execute(txn.connection()).await.map_err(|error| store.file.fault_of_message(error))?;
    Ok(done.rows_affected() == 1)
}

impl InboxRows for Sqlite {
    async fn insert(&self, txn: &mut Txn, row: &NewRow<'_>) -> Result<i64, StoreError> {
        insert(self, txn, row).await
    }

    async fn count_duplicate(&self, txn: &mut Txn, identity: &Identity) -> Result<(), StoreError> {
        let query = sqlx::query(self.prefix.sql(inbox_sql::COUNT_DUPLICATE))
            .bind(identity.handler.0)
            .bind(identity.key.as_bytes())
            .bind(identity.fingerprint.as_bytes());
        query.execute(txn.connection()).await.map(|_| ()).map_err(|error| self.file.fault_of_message(error))
    }

    /// Two statements, since SQLite has none that changes two tables; no other connection sees the state between them.
    async fn start(&self, txn: &mut Txn, row: &Row) -> Result<bool, StoreError> {
        if !remove(self, txn, row).await? {
            return Ok(false);
        }
        let Identity { handler, key, .. } = &row.identity;
        let date = sqlx::query(self.prefix.sql(inbox_sql::DATE)).bind(handler.0).bind(key.as_bytes());
        date.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        txn.guard(Some((*handler, key))).await.map_err(|error| self.file.fault_of_message(error))?;
        Ok(true)
    }

    async fn remove(&self, txn: &mut Txn, row: &Row) -> Result<bool, StoreError> {
        remove(self, txn, row).await
    }

    async fn poll_due(&self, handlers: &[HandlerId], lease: Duration) -> Result<DueRows, StoreError> {
        let mut reader = self.file.reader().await?;
        let read = async {
            let row = sqlx::query(self.prefix.sql(inbox_sql::POLL_DUE))
                .bind(ids(handlers))
                .bind(MAX_STARTS)
                .bind(millis(lease.saturating_mul(CRASHED_LEASES)))
                .fetch_one(&mut reader.connection)
                .await?;
            let ordinary = row.try_get("ordinary")?;
            let suspect = row.try_get("suspect")?;
            let alone = row.try_get("alone")?;
            Ok(DueRows { ordinary, suspect, alone, crashed: row.try_get("crashed")? })
        };
        let due = read.await.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(due)
    }

    async fn take(
        &self,
        handlers: &[HandlerId],
        kind: RowKind,
        limit: TakeLimit,
        token: Uuid,
        lease: Duration,
    ) -> Result<Vec<Row>, StoreError> {
        let text = match kind {
            RowKind::Ordinary => inbox_sql::TAKE_ORDINARY,
            RowKind::Suspect => inbox_sql::TAKE_SUSPECT,
            RowKind::Alone => inbox_sql::TAKE_ALONE,
        };
        let most = i64::try_from(limit.rows).unwrap_or(i64::MAX);
        let mut connection = self.file.writer().await?;
        let take = async {
            let due = sqlx::query(self.prefix.sql(inbox_sql::DUE))
                .bind(ids(handlers))
                .bind(if kind == RowKind::Ordinary { most } else { 0 })
                .fetch_all(connection.raw())
                .await?;
            let mut waited = HashMap::with_capacity(due.len());
            let (mut bytes, mut fit) = (0, 0);
            for row in &due {
                waited.insert(row.try_get::<i64, _>("id")?, duration(row.try_get("waited")?));
                fit += i64::from(bytes < limit.bytes);
                bytes += usize::try_from(row.try_get::<i64, _>("bytes")?).unwrap_or(0);
            }
            let most = if kind == RowKind::Ordinary { fit } else { most };
            let query =
                sqlx::query(self.prefix.sql(text)).bind(ids(handlers)).bind(most).bind(millis(lease)).bind(token);
            let query = if kind == RowKind::Alone { query.bind(MAX_STARTS) } else { query };
            let mut taken = rows(&query.fetch_all(connection.raw()).await?)?;
            taken.iter_mut().for_each(|row| row.waited = waited.remove(&row.id));
            Ok(taken)
        };
        let taken = take.await.map_err(|error| self.file.fault(error))?;
        connection.give_back();
        Ok(taken)
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), StoreError> {
        let ids = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let query =
            sqlx::query(self.prefix.sql(inbox_sql::EXTEND)).bind(format!("[{ids}]")).bind(token).bind(millis(lease));
        self.change(query).await.map(|_| ())
    }

    /// Uses the writer's queue, not a reader: the connection whose answer was lost is closed first.
    async fn rows_by_token(&self, token: Uuid) -> Result<Vec<Row>, StoreError> {
        let mut connection = self.file.writer().await?;
        let taken = sqlx::query(self.prefix.sql(inbox_sql::TAKEN)).bind(token).fetch_all(connection.raw()).await;
        let taken = taken.and_then(|taken: Vec<SqliteRow>| rows(&taken)).map_err(|error| self.file.fault(error))?;
        connection.give_back();
        Ok(taken)
    }

    async fn record_result(&self, row: &Row, result: &RowResult) -> Result<bool, StoreError> {
        let (text, due, reason, error) = match result {
            RowResult::LeftToCall { provider_key } => return self.leave_to_call(row, *provider_key).await,
            RowResult::Failed { next, error } => (inbox_sql::FAILED, next.unwrap_or_default(), next.err(), Some(error)),
            RowResult::Broke { due, error } => (inbox_sql::BROKE, *due, Some(Reason::BrokeConnection), Some(error)),
            RowResult::GivenBack { due } => (inbox_sql::GIVEN_BACK, *due, None, None),
            RowResult::Released { due } => (inbox_sql::RELEASED, *due, None, None),
            RowResult::Dead { reason, error } => (inbox_sql::DEAD, Duration::ZERO, Some(*reason), Some(error)),
        };
        let mut query = sqlx::query(self.prefix.sql(text)).bind(row.id).bind(row.locked_by).bind(millis(due));
        if let Some(error) = error {
            query = query.bind(reason.map(Reason::as_str)).bind(error_text(error).into_owned());
        }
        if let RowResult::Broke { .. } = result {
            query = query.bind(MAX_BREAKS);
        }
        Ok(self.change_of_message(query).await? == 1)
    }

    async fn is_scheduled(&self, identity: &Identity) -> Result<bool, StoreError> {
        let mut reader = self.file.reader().await?;
        let query = sqlx::query(self.prefix.sql(inbox_sql::IS_SCHEDULED))
            .bind(identity.handler.0)
            .bind(identity.key.as_bytes());
        let row = query.fetch_optional(&mut reader.connection).await.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(row.is_some())
    }

    async fn refund_start(&self, row: &Row) -> Result<(), StoreError> {
        self.change(sqlx::query(self.prefix.sql(inbox_sql::REFUND_START)).bind(row.id)).await.map(|_| ())
    }

    async fn dead_letter_crashed(&self, handlers: &[HandlerId], lease: Duration) -> Result<Vec<Row>, StoreError> {
        let query = sqlx::query(self.prefix.sql(inbox_sql::DEAD_LETTER_CRASHED))
            .bind(ids(handlers))
            .bind(MAX_STARTS)
            .bind(millis(lease.saturating_mul(CRASHED_LEASES)))
            .bind(Reason::Crashed.as_str())
            .bind(CRASHED_AT_ONCE)
            .bind(CRASHED);
        let mut connection = self.file.writer().await?;
        let dead = query.fetch_all(connection.raw()).await;
        let dead = dead.and_then(|dead: Vec<SqliteRow>| rows(&dead)).map_err(|error| self.file.fault(error))?;
        connection.give_back();
        Ok(dead)
    }
}
