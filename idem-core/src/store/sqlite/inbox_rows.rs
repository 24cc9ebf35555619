//! Inbox rows: inserted, taken, started, and their outcomes.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::sql::{duration, ids, millis, rows, since_epoch};
use super::{Sqlite, Txn, calls_sql, inbox_sql};
use crate::Reason;
use crate::store::{
    CRASHED, CRASHED_AT_ONCE, CRASHED_LEASES, CallAnswer, DueRows, HandlerId, Identity, InboxRows, LookBack,
    MAX_BREAKS, MAX_STARTS, NewRow, Row, RowKind, RowResult, StoreError, TakeLimit, envelope, error_text,
};

/// Inserts a row, or counts a delivery of one that is there, and returns its id.
pub(super) async fn insert(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    row: &NewRow<'_>,
) -> Result<i64, sqlx::Error> {
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
    query.fetch_one(connection).await
}

async fn remove(store: &Sqlite, txn: &mut Txn, row: &Row) -> Result<bool, StoreError> {
    let query = sqlx::query(store.prefix.sql(inbox_sql::REMOVE)).bind(row.id).bind(row.locked_by);
    let done = query.execute(txn.connection()).await.map_err(|error| store.file.fault_of_message(error))?;
    Ok(done.rows_affected() == 1)
}

impl InboxRows for Sqlite {
    async fn insert(&self, txn: &mut Txn, rows: &[NewRow<'_>]) -> Result<Vec<i64>, StoreError> {
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            let id = insert(self, txn.connection(), row).await;
            ids.push(id.map_err(|error| self.file.fault_of_message(error))?);
        }
        Ok(ids)
    }

    async fn count_duplicates(&self, txn: &mut Txn, identities: &[&Identity]) -> Result<(), StoreError> {
        for Identity { handler, key, fingerprint } in identities {
            let query = sqlx::query(self.prefix.sql(inbox_sql::COUNT_DUPLICATE)).bind(handler.0);
            let query = query.bind(key.as_bytes()).bind(fingerprint.as_bytes());
            query.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        }
        Ok(())
    }

    /// Two statements for each, since SQLite has none that changes two tables; no other connection sees the state between them.
    async fn start(&self, txn: &mut Txn, rows: &[&Row]) -> Result<Vec<bool>, StoreError> {
        let mut started = Vec::with_capacity(rows.len());
        for row in rows {
            let is_ours = remove(self, txn, row).await?;
            started.push(is_ours);
            if !is_ours {
                continue;
            }
            let Identity { handler, key, .. } = &row.identity;
            let date = sqlx::query(self.prefix.sql(inbox_sql::DATE)).bind(handler.0).bind(key.as_bytes());
            date.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        }
        // All rows commit together, so the fate of one is the fate of all.
        if let Some((row, _)) = rows.iter().zip(&started).find(|(_, is_ours)| **is_ours) {
            txn.guard(Some(&row.identity)).await.map_err(|error| self.file.fault_of_message(error))?;
        }
        Ok(started)
    }

    async fn remove(&self, txn: &mut Txn, row: &Row) -> Result<bool, StoreError> {
        remove(self, txn, row).await
    }

    /// It needs no bound: what was deleted from an index is not in the way of later searches, whatever others still read.
    async fn poll_due(&self, handlers: &[HandlerId], lease: Duration, _: LookBack) -> Result<DueRows, StoreError> {
        let read = async |store: &Self, reader: &mut SqliteConnection| {
            let query = sqlx::query(store.prefix.sql(inbox_sql::POLL_DUE)).bind(ids(handlers)).bind(MAX_STARTS);
            let row = query.bind(millis(lease.saturating_mul(CRASHED_LEASES))).fetch_one(reader).await?;
            let (ordinary, suspect) = (row.try_get("ordinary")?, row.try_get("suspect")?);
            Ok(DueRows { ordinary, suspect, alone: row.try_get("alone")?, crashed: row.try_get("crashed")? })
        };
        self.read(read).await
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
        let take = async |store: &Self, writer: &mut SqliteConnection| {
            let due = sqlx::query(store.prefix.sql(inbox_sql::DUE))
                .bind(ids(handlers))
                .bind(if kind == RowKind::Ordinary { most } else { 0 })
                .fetch_all(&mut *writer)
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
                sqlx::query(store.prefix.sql(text)).bind(ids(handlers)).bind(most).bind(millis(lease)).bind(token);
            let query = if kind == RowKind::Alone { query.bind(MAX_STARTS) } else { query };
            let mut taken = rows(&query.fetch_all(writer).await?)?;
            taken.iter_mut().for_each(|row| row.waited = waited.remove(&row.id));
            Ok(taken)
        };
        self.write(take).await
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), StoreError> {
        let ids = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let query =
            sqlx::query(self.prefix.sql(inbox_sql::EXTEND)).bind(format!("[{ids}]")).bind(token).bind(millis(lease));
        self.change(query).await.map(|_| ())
    }

    /// Uses the writer's queue, not a reader: the connection whose answer was lost is closed first.
    async fn rows_by_token(&self, token: Uuid) -> Result<Vec<Row>, StoreError> {
        let found = async |store: &Self, writer: &mut SqliteConnection| {
            rows(&sqlx::query(store.prefix.sql(inbox_sql::TAKEN)).bind(token).fetch_all(writer).await?)
        };
        self.write(found).await
    }

    async fn record_result(&self, row: &Row, result: &RowResult) -> Result<bool, StoreError> {
        let (text, due, reason, error) = match result {
            RowResult::LeftToCall { provider_key } => {
                let query = sqlx::query(self.prefix.sql(calls_sql::LEAVE_TO_CALL)).bind(row.id).bind(row.locked_by);
                return Ok(self.change(query.bind(provider_key)).await? == 1);
            }
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
        let find = async |store: &Self, reader: &mut SqliteConnection| {
            let query = sqlx::query(store.prefix.sql(inbox_sql::IS_SCHEDULED)).bind(identity.handler.0);
            query.bind(identity.key.as_bytes()).fetch_optional(reader).await
        };
        Ok(self.read(find).await?.is_some())
    }

    async fn refund_start(&self, row: &Row) -> Result<(), StoreError> {
        self.change(sqlx::query(self.prefix.sql(inbox_sql::REFUND_START)).bind(row.id)).await.map(drop)
    }

    async fn dead_letter_crashed(&self, handlers: &[HandlerId], lease: Duration) -> Result<Vec<Row>, StoreError> {
        let bury = async |store: &Self, writer: &mut SqliteConnection| {
            let query = sqlx::query(store.prefix.sql(inbox_sql::DEAD_LETTER_CRASHED))
                .bind(ids(handlers))
                .bind(MAX_STARTS)
                .bind(millis(lease.saturating_mul(CRASHED_LEASES)))
                .bind(Reason::Crashed.as_str())
                .bind(CRASHED_AT_ONCE)
                .bind(CRASHED);
            rows(&query.fetch_all(writer).await?)
        };
        self.write(bury).await
    }
}
