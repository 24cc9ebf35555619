//! Inbox rows in their call phase.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use crate::store::{
    CallAnswer, CallResult, CallRows, Caller, HandlerId, LeftCalls, RELEASED_AT_ONCE, Row, StoreError, TakenCalls,
    error_text, next_provider_key,
};
use crate::{Error, Reason};

use super::Sqlite;
use super::sql::{duration, ids, millis, row, rows};

pub(super) const DUE: &str = r#"
SELECT EXISTS (
    SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
        SELECT 1 FROM "idem_inbox_messages"
        WHERE handler_id = h.value AND state = 'calling'
            AND coalesce(locked_until, run_at) <= +{now}
    )
)"#;

/// The oldest rows of all handlers, searched as those of an ordinary take are.
pub(super) const FIND: &str = r#"
SELECT m.id, m.handler_id, {now} - coalesce(m.locked_until, m.run_at)
FROM json_each(?1) AS h CROSS JOIN "idem_inbox_messages" AS m
WHERE m.id IN (
    SELECT i.id FROM "idem_inbox_messages" AS i
    WHERE i.handler_id = h.value AND i.state = 'calling' AND coalesce(i.locked_until, i.run_at) <= +{now}
    ORDER BY coalesce(i.locked_until, i.run_at) LIMIT ?2
)
ORDER BY coalesce(m.locked_until, m.run_at) LIMIT ?2"#;

/// The time of the first call is written before the call.
const TAKE: &str = r#"
UPDATE "idem_inbox_messages" SET crash_count = crash_count + 1, locked_by = ?2, locked_until = {now} + ?3,
    provider_key = coalesce(provider_key, ?4), called_at = coalesce(called_at, {now}),
    called_by = CASE WHEN called_at IS NULL THEN ?2 ELSE called_by END,
    call_name = CASE WHEN called_at IS NULL THEN ?5 ELSE call_name END
WHERE id = ?1
RETURNING {row}"#;

const TAKEN: &str = r#"SELECT {row} FROM "idem_inbox_messages" WHERE locked_by = ?1 AND state = 'calling'"#;

/// One statement for every result: ?3 attempts to add, ?4 the answer, ?5 the delay, ?6 the reason if dead, ?7 the error, ?8
/// whether no call can have had an effect, ?9 whether the lease is left to end, ?10 whether a question has failed. The first
/// one begins the attempts anew. A row that is only given back keeps the earlier starts: they may have ended processes.
///
/// An answer is kept also if the lease has ended meanwhile, as in an outage: it is that of the key ?11, which the row has until
/// a person has said that no call under it had an effect.
pub(super) const RECORD: &str = r#"
UPDATE "idem_inbox_messages" SET
    locked_by = NULL,
    locked_until = NULL,
    crash_count = CASE WHEN ?4 IS NULL AND ?3 = 0 AND ?6 IS NULL THEN max(crash_count - 1, 0) ELSE 0 END,
    attempts = CASE WHEN ?4 IS NOT NULL THEN 0 WHEN ?10 AND asked_at IS NULL THEN ?3 ELSE attempts + ?3 END,
    asked_at = CASE WHEN ?10 THEN coalesce(asked_at, {now}) ELSE asked_at END,
    answer = ?4,
    called_at = CASE WHEN NOT ?8 THEN called_at END,
    called_by = CASE WHEN NOT ?8 THEN called_by END,
    call_name = CASE WHEN NOT ?8 THEN call_name END,
    run_at = max(CASE WHEN ?9 THEN coalesce(locked_until, 0) ELSE 0 END, {now} + ?5),
    reason = ?6,
    state = CASE WHEN ?6 IS NOT NULL THEN 'dead' WHEN ?4 IS NOT NULL THEN 'scheduled' ELSE 'calling' END,
    died_at = CASE WHEN ?6 IS NOT NULL THEN {now} END,
    error = coalesce(?7, error)
WHERE id = ?1 AND state IN ('calling', 'dead') AND answer IS NULL AND (locked_by = ?2 OR ?4 IS NOT NULL AND provider_key = ?11)"#;

const DATE: &str = r#"
UPDATE "idem_inbox_messages" SET called_at = {now}, called_by = locked_by, asked_at = NULL,
    locked_until = {now} + ?3
WHERE id = ?1 AND locked_by = ?2 AND state = 'calling'"#;

const LEAVE_TO_CALL: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, state = 'calling', crash_count = 0,
    lost_connections = 0, run_at = {now}, provider_key = coalesce(provider_key, ?3)
WHERE id = ?1 AND locked_by = ?2"#;

const LEFT: &str = r#"
SELECT count(*) FILTER (WHERE called_at IS NULL) AS unused, count(*) FILTER (WHERE called_at IS NOT NULL) AS in_doubt
FROM "idem_inbox_messages"
WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling'"#;

/// ?2: how many rows to release.
const RELEASE: &str = r#"
UPDATE "idem_inbox_messages" SET state = 'scheduled', crash_count = 0
WHERE id IN (
    SELECT id FROM "idem_inbox_messages"
    WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling' AND called_at IS NULL
    LIMIT ?2
)"#;

/// ?3: the answer; null: another call, which needs another key, and waits until no request of the last one can be on its way. A
/// row that has an answer is not called for again. ?5: the key that the person has looked for; ?4: the one that follows it.
const RESOLVE: &str = r#"
UPDATE "idem_inbox_messages" SET
    state = CASE WHEN ?3 IS NULL THEN 'calling' ELSE 'scheduled' END,
    reason = NULL, died_at = NULL, locked_by = NULL, locked_until = NULL, crash_count = 0, attempts = 0, lost_connections = 0,
    run_at = CASE WHEN ?3 IS NULL THEN max(coalesce(locked_until, 0), run_at, {now}) ELSE {now} END,
    answer = ?3,
    provider_key = CASE WHEN ?3 IS NULL THEN ?4 ELSE provider_key END,
    called_at = CASE WHEN ?3 IS NOT NULL THEN called_at END,
    called_by = CASE WHEN ?3 IS NOT NULL THEN called_by END,
    call_name = NULL,
    asked_at = CASE WHEN ?3 IS NOT NULL THEN asked_at END
WHERE id = ?1 AND state = 'dead' AND provider_key = ?5 AND (?3 IS NOT NULL OR answer IS NULL)
    AND handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?2)"#;

/// The namespace is the default of its column, a random value.
const STORE_NAMESPACE: &str = r#"INSERT INTO "idem_call_namespaces" (handler_id) VALUES (?1) ON CONFLICT DO NOTHING"#;

const NAMESPACE: &str = r#"SELECT namespace FROM "idem_call_namespaces" WHERE handler_id = ?1"#;

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
        let mut reader = self.file.reader().await?;
        let due = sqlx::query_scalar(self.prefix.sql(DUE)).bind(ids(&handlers)).fetch_one(&mut reader.connection).await;
        let due: bool = due.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        if !due {
            return Ok(TakenCalls::new(Vec::new(), Instant::now()));
        }
        let mut txn = self.transaction().await?;
        // It is the writer now. The clock by which the leases are dated is read by the statements that follow.
        let since = Instant::now();
        let taken =
            take(self, txn.connection(), callers, limit, token).await.map_err(|error| self.file.fault(error))?;
        self.finish(txn, !taken.is_empty()).await?;
        Ok(TakenCalls::new(taken, since))
    }

    /// Uses the writer's queue, not a reader: the connection whose answer was lost is closed first.
    async fn calls_by_token(&self, token: Uuid) -> Result<Vec<Row>, StoreError> {
        let mut connection = self.file.writer().await?;
        let taken = sqlx::query(self.prefix.sql(TAKEN)).bind(token).fetch_all(connection.raw()).await;
        let taken = taken.and_then(|taken| rows(&taken)).map_err(|error| self.file.fault(error))?;
        connection.give_back();
        Ok(taken)
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
        let query = sqlx::query(self.prefix.sql(DATE)).bind(row.id).bind(row.locked_by).bind(millis(lease));
        let mut txn = self.transaction().await?;
        // As in a take, it is the writer now.
        let since = Instant::now();
        let done = query.execute(txn.connection()).await.map_err(|error| self.file.fault(error))?;
        let is_dated = done.rows_affected() == 1;
        self.finish(txn, is_dated).await?;
        Ok(is_dated.then_some(since))
    }

    /// Reads first: nearly always there are none, and there is one writer.
    async fn release_calls(&self, handlers: &[HandlerId]) -> Result<LeftCalls, StoreError> {
        let handlers = ids(handlers);
        let mut reader = self.file.reader().await?;
        let query = sqlx::query_as(self.prefix.sql(LEFT)).bind(&handlers);
        let (unused, in_doubt): (i64, i64) =
            query.fetch_one(&mut reader.connection).await.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        let released = match unused {
            0 => 0,
            _ => self.change(sqlx::query(self.prefix.sql(RELEASE)).bind(handlers).bind(RELEASED_AT_ONCE)).await?,
        };
        Ok(LeftCalls::new(released, in_doubt.unsigned_abs()))
    }

    async fn call_namespace(&self, handler: HandlerId) -> Result<Uuid, Error> {
        let failed = |fault: StoreError| Error::database("could not register a namespace of calls", fault);
        let mut connection = self.file.writer().await.map_err(failed)?;
        let prefix = &self.prefix;
        let stored = async {
            sqlx::query(prefix.sql(STORE_NAMESPACE)).bind(handler.0).execute(connection.raw()).await?;
            sqlx::query_scalar(prefix.sql(NAMESPACE)).bind(handler.0).fetch_one(connection.raw()).await
        };
        let namespace = stored.await.map_err(|error| failed(self.file.fault(error)))?;
        connection.give_back();
        Ok(namespace)
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

impl Sqlite {
    /// Moves a taken row to its call phase, with this key, unless it has one.
    pub(super) async fn leave_to_call(&self, row: &Row, provider_key: Uuid) -> Result<bool, StoreError> {
        let query = sqlx::query(self.prefix.sql(LEAVE_TO_CALL)).bind(row.id).bind(row.locked_by);
        Ok(self.change(query.bind(provider_key)).await? == 1)
    }

    /// Gives a dead row of a call its answer, or lets it call again.
    pub(super) async fn resolve_call(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Uuid,
        answer: Option<&CallAnswer>,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(self.prefix.sql(RESOLVE)).bind(id).bind(consumer);
        let query =
            query.bind(answer.map(CallAnswer::as_bytes)).bind(next_provider_key(provider_key)).bind(provider_key);
        Ok(self.change_of_message(query).await? == 1)
    }
}
