//! Inbox rows: inserted, fetched, started, called for, and their outcomes.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::sql::{self, ids, json, millis, rows, since_epoch};
use super::{Sqlite, Txn, inbox_sql};
use crate::Reason;
use crate::store::sql::statements;
use crate::store::{
    Answer, CRASHED, CRASHED_AT_ONCE, CRASHED_LEASES, CallAnswer, CallResult, ClaimState, DueRows, FetchFor,
    FetchLimit, FetchedRows, HandlerId, Identity, InboxRows, LeftCalls, LookBack, MAX_STARTS, NewRow, RELEASED_AT_ONCE,
    Row, RowKind, RowResult, envelope, error_text,
};

/// Inserts a row, or counts a delivery of one that is there, and returns its id.
pub(super) async fn insert(connection: &mut SqliteConnection, row: &NewRow<'_>) -> sqlx::Result<i64> {
    let Identity { handler, key, fingerprint } = row.identity;
    let query = sqlx::query_scalar(sql::filled(inbox_sql::INSERT)).bind(handler.0).bind(key.as_bytes());
    let query = query.bind(fingerprint.as_bytes()).bind(row.delivery.payload().as_ref());
    let query = query.bind(envelope::seal(row.delivery)).bind(row.attempts).bind(error_text(row.error));
    let query = query.bind(row.state.err().map(Reason::as_str)).bind(row.state.map_or(0, millis));
    let query = query.bind(row.provider_key).bind(row.answer.map(CallAnswer::as_bytes)).bind(row.call_name);
    let query = query.bind(row.called_at.map(since_epoch)).bind(row.calls);
    query.fetch_one(connection).await
}

impl InboxRows for Sqlite {
    async fn insert(&self, txn: &mut Txn, rows: &[NewRow<'_>]) -> Answer<Vec<i64>> {
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            let id = insert(txn.connection(), row).await;
            ids.push(id.map_err(|error| self.file.fault_of_message(error))?);
        }
        Ok(ids)
    }

    /// Two statements for each, since SQLite has none that changes two tables; no other connection sees the state between them.
    async fn start(&self, txn: &mut Txn, rows: &[&Row], state: ClaimState) -> Answer<Vec<bool>> {
        let mut started = Vec::with_capacity(rows.len());
        for row in rows {
            let remove = sql::query(inbox_sql::REMOVE).bind(row.id).bind(row.locked_by);
            let removed = remove.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
            let is_ours = removed.rows_affected() == 1;
            started.push(is_ours);
            if is_ours && state == ClaimState::Processed {
                let Identity { handler, key, .. } = &row.identity;
                let date = sql::query(inbox_sql::DATE).bind(handler.0).bind(key.as_bytes());
                date.execute(txn.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
            }
        }
        // All rows commit together, so the outcome of one is the outcome of all.
        let first = rows.iter().zip(&started).find(|(_, is_ours)| **is_ours);
        if let (Some((row, _)), ClaimState::Processed) = (first, state) {
            txn.guard(Some(&row.identity)).await.map_err(|error| self.file.fault_of_message(error))?;
        }
        Ok(started)
    }

    /// It needs no bound: what was deleted from an index is not in the way of later searches, whatever others still read.
    async fn poll_due(&self, handlers: &[HandlerId], lease: Duration, _: LookBack) -> Answer<DueRows> {
        let query = sql::query(&inbox_sql::poll_due()).bind(ids(handlers)).bind(MAX_STARTS);
        let query = query.bind(millis(lease.saturating_mul(CRASHED_LEASES)));
        let (ordinary, orphan, alone, crashed) = self.read_one(query).await?;
        Ok(DueRows { ordinary, orphan, alone, crashed })
    }

    /// For calls it reads first: each poll comes here, and there is one writer.
    async fn fetch(&self, handlers: &[FetchFor], limit: FetchLimit, token: Uuid) -> Answer<FetchedRows> {
        if limit.kind == RowKind::Calling {
            let is_due = format!("SELECT {}", inbox_sql::has(inbox_sql::CALLING));
            let ids = ids(&handlers.iter().map(|of| of.handler).collect::<Vec<_>>());
            let (is_due,): (bool,) = self.read_one(sql::query(&is_due).bind(ids)).await?;
            if !is_due {
                return Ok(FetchedRows { rows: Vec::new(), since: Instant::now() });
            }
        }
        let [most, bytes] = [limit.rows, limit.bytes].map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let handlers: Vec<_> = handlers.iter().map(|of| (of.handler.0, millis(of.lease), &*of.call)).collect();
        let query = sql::query(&inbox_sql::fetch(limit.kind)).bind(json(&handlers)).bind(most).bind(token).bind(bytes);
        self.change_since(query, |fetched, since| Ok(FetchedRows { rows: rows(fetched)?, since })).await
    }

    async fn date_call(&self, row: &Row, lease: Duration) -> Answer<Option<Instant>> {
        let query = sql::query(statements::DATE_CALL).bind(row.id).bind(row.locked_by).bind(millis(lease));
        self.change_since(query, |dated, since| Ok((!dated.is_empty()).then_some(since))).await
    }

    async fn release_calls(&self, handlers: &[HandlerId]) -> Answer<LeftCalls> {
        let handlers = ids(handlers);
        let release = sql::query(inbox_sql::RELEASE_CALLS).bind(&handlers).bind(RELEASED_AT_ONCE);
        let released = self.change(release).await?;
        let (in_doubt,): (i64,) = self.read_one(sql::query(inbox_sql::IN_DOUBT).bind(&handlers)).await?;
        Ok(LeftCalls { released, in_doubt: in_doubt.unsigned_abs() })
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Answer<()> {
        let query = sql::query(inbox_sql::EXTEND).bind(json(ids)).bind(token).bind(millis(lease));
        self.change(query).await.map(|_| ())
    }

    /// Uses the writer's queue, not a reader: the connection whose answer was lost is closed first.
    async fn rows_by_token(&self, token: Uuid) -> Answer<Vec<Row>> {
        self.change_rows(sql::query(inbox_sql::ROWS_BY_TOKEN).bind(token)).await
    }

    async fn record_result(&self, row: &Row, result: &RowResult) -> Answer<bool> {
        let ((attempts, starts, lost), due, reason, error) = match result {
            RowResult::Failed { next, error } => ((1, 0, 0), next.ok(), next.err(), Some(error)),
            RowResult::Broke { due, error } => ((0, 1, 1), Some(*due), None, Some(error)),
            RowResult::Snoozed { due } => ((0, 1, 0), Some(*due), None, None),
            RowResult::Released { due } => ((0, 0, 0), Some(*due), None, None),
            RowResult::Dead { reason, error } => ((0, 0, 0), None, Some(*reason), Some(error)),
            RowResult::LeftToCall { provider_key } => {
                let query = sql::query(statements::LEAVE_TO_CALL).bind(row.id).bind(row.locked_by);
                return Ok(self.change(query.bind(provider_key)).await? == 1);
            }
            RowResult::Refunded => {
                return self.change(sql::query(statements::REFUND_START).bind(row.id)).await.map(|_| true);
            }
            RowResult::Called(result) => {
                let CallResult { answer, next, error, is_attempt, is_unused, in_doubt, is_question } = result;
                let query =
                    sql::query(statements::RECORD_CALL).bind(row.id).bind(row.locked_by).bind(i64::from(*is_attempt));
                let query =
                    query.bind(answer.as_ref().map(CallAnswer::as_bytes)).bind(millis(next.unwrap_or_default()));
                let query = query.bind(next.err().map(Reason::as_str)).bind(error.as_deref().map(error_text));
                let query = query.bind(*is_unused).bind(*in_doubt).bind(*is_question);
                return Ok(self.change(query.bind(row.provider_key)).await? == 1);
            }
        };
        let query = sql::query(statements::RECORD_RESULT).bind(row.id).bind(row.locked_by);
        let query = query.bind(attempts).bind(starts).bind(lost).bind(due.map(millis));
        let query = query.bind(reason.map(Reason::as_str)).bind(error.map(|error| error_text(error).into_owned()));
        Ok(self.change(query).await? == 1)
    }

    async fn is_scheduled(&self, identity: &Identity) -> Answer<bool> {
        let query = sql::query(statements::IS_SCHEDULED).bind(identity.handler.0).bind(identity.key.as_bytes());
        Ok(!self.read_all(query, |_| Ok(())).await?.is_empty())
    }

    async fn dead_letter_crashed(&self, handlers: &[HandlerId], lease: Duration) -> Answer<Vec<Row>> {
        let query = sql::query(inbox_sql::DEAD_LETTER_CRASHED).bind(ids(handlers)).bind(MAX_STARTS);
        let query = query.bind(millis(lease.saturating_mul(CRASHED_LEASES))).bind(Reason::Crashed.as_str());
        self.change_rows(query.bind(CRASHED_AT_ONCE).bind(CRASHED)).await
    }
}
