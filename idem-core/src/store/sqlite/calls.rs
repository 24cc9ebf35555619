//! Inbox rows in their call phase.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::calls_sql::{DATE, DUE, FIND, LEFT, NAMESPACE, RECORD, RELEASE, STORE_NAMESPACE, TAKE};
use super::sql::{duration, ids, millis, row};
use super::{Sqlite, Txn};
use crate::store::{
    CallAnswer, CallResult, CallRows, Caller, HandlerId, LeftCalls, RELEASED_AT_ONCE, Row, StoreError, TakenCalls,
    error_text,
};
use crate::{Error, Reason};

impl CallRows for Sqlite {
    /// Reads first: each poll comes here, and there is one writer. It needs no bound: what was deleted from an index is not in the
    /// way of later searches, whatever others still read.
    async fn take_calls(
        &self,
        callers: &[Caller],
        limit: usize,
        _since: Option<Duration>,
        token: Uuid,
    ) -> Result<TakenCalls, StoreError> {
        let handlers: Vec<_> = callers.iter().map(|caller| caller.handler).collect();
        let look = async |store: &Self, reader: &mut SqliteConnection| {
            sqlx::query_scalar(store.prefix.sql(DUE)).bind(ids(&handlers)).fetch_one(reader).await
        };
        let is_due: bool = self.read(look).await?;
        if !is_due {
            return Ok(TakenCalls::new(Vec::new(), Instant::now()));
        }
        let take = async |store: &Self, txn: &mut Txn| {
            // It is the writer now. The clock by which the leases are dated is read by the statements that follow.
            let since = Instant::now();
            Ok(TakenCalls::new(take(store, txn.connection(), callers, limit, token).await?, since))
        };
        self.in_transaction(take).await
    }

    async fn record_call(&self, row: &Row, result: &CallResult) -> Result<bool, StoreError> {
        let CallResult { answer, next, error, is_attempt, is_unused, in_doubt, is_question } = result;
        let query = sqlx::query(self.prefix.sql(RECORD))
            .bind(row.id)
            .bind(row.locked_by)
            .bind(i64::from(*is_attempt))
            .bind(answer.as_ref().map(CallAnswer::as_bytes))
            .bind(millis(next.unwrap_or_default()))
            .bind(next.err().map(Reason::as_str))
            .bind(error.as_deref().map(error_text))
            .bind(*is_unused)
            .bind(*in_doubt)
            .bind(*is_question)
            .bind(row.provider_key);
        Ok(self.change_of_message(query).await? == 1)
    }

    async fn date_call(&self, row: &Row, lease: Duration) -> Result<Option<Instant>, StoreError> {
        let date = async |store: &Self, txn: &mut Txn| {
            // As in a take, it is the writer now.
            let since = Instant::now();
            let query = sqlx::query(store.prefix.sql(DATE)).bind(row.id).bind(row.locked_by).bind(millis(lease));
            Ok((query.execute(txn.connection()).await?.rows_affected() == 1).then_some(since))
        };
        self.in_transaction(date).await
    }

    /// Reads first: nearly always there are none, and there is one writer.
    async fn release_calls(&self, handlers: &[HandlerId]) -> Result<LeftCalls, StoreError> {
        let handlers = ids(handlers);
        let count = async |store: &Self, reader: &mut SqliteConnection| {
            sqlx::query_as(store.prefix.sql(LEFT)).bind(&handlers).fetch_one(reader).await
        };
        let (unused, in_doubt): (i64, i64) = self.read(count).await?;
        let released = match unused {
            0 => 0,
            _ => self.change(sqlx::query(self.prefix.sql(RELEASE)).bind(&handlers).bind(RELEASED_AT_ONCE)).await?,
        };
        Ok(LeftCalls::new(released, in_doubt.unsigned_abs()))
    }

    async fn call_namespace(&self, handler: HandlerId) -> Result<Uuid, Error> {
        let store = async |store: &Self, writer: &mut SqliteConnection| {
            sqlx::query(store.prefix.sql(STORE_NAMESPACE)).bind(handler.0).execute(&mut *writer).await?;
            sqlx::query_scalar(store.prefix.sql(NAMESPACE)).bind(handler.0).fetch_one(writer).await
        };
        let failed = |fault: StoreError| Error::database("could not register a namespace of calls", fault);
        self.write(store).await.map_err(failed)
    }
}

async fn take(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    callers: &[Caller],
    limit: usize,
    token: Uuid,
) -> Result<Vec<Row>, sqlx::Error> {
    let handlers: Vec<_> = callers.iter().map(|caller| caller.handler).collect();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let due = sqlx::query_as::<_, (i64, i32, i64)>(store.prefix.sql(FIND)).bind(ids(&handlers)).bind(limit);
    let mut taken = Vec::new();
    for (id, handler, waited) in due.fetch_all(&mut *connection).await? {
        let Some(caller) = callers.iter().find(|caller| caller.handler.0 == handler) else { continue };
        let query = sqlx::query(store.prefix.sql(TAKE)).bind(id).bind(token).bind(millis(caller.lease));
        let query = query.bind(Uuid::new_v4()).bind(&*caller.name);
        let row = row(&query.fetch_one(&mut *connection).await?)?;
        taken.push(Row { waited: Some(duration(waited)), ..row });
    }
    Ok(taken)
}
