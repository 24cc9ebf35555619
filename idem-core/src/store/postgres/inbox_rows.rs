//! Inbox rows: inserted, fetched, started, called for, and their outcomes.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use sqlx::Row as _;
use uuid::Uuid;

use crate::Reason;
use crate::store::sql::statements;
use crate::store::{
    Answer, CRASHED_LEASES, CallAnswer, CallResult, ClaimState, DueRows, FetchFor, FetchLimit, FetchedRows, HandlerId,
    Identity, InboxRows, LeftCalls, LookBack, NewRow, RELEASED_AT_ONCE, Row, RowResult, StoreError, envelope,
    error_text,
};

use super::answer::About;
use super::rows::{self, back, columns, each, fingerprints, ids, interval, number, secs};
use super::{Postgres, Txn, inbox_sql};

/// Returns for how many seconds the last lease must have expired.
fn over(lease: Duration) -> f64 {
    secs(lease.saturating_mul(CRASHED_LEASES))
}

/// The statement has succeeded, and a row is not there: only a trigger of somebody else's does that.
fn not_stored() -> StoreError {
    StoreError::Message("PostgreSQL has stored no row: a BEFORE INSERT trigger of inbox_messages returns NULL".into())
}

impl InboxRows for Postgres {
    async fn insert(&self, txn: &mut Txn, rows: &[NewRow<'_>]) -> Answer<Vec<i64>> {
        let identities = each(rows, |row| row.identity);
        let (handlers, keys) = columns(&identities);
        let query = self.query(inbox_sql::INSERT).bind(handlers).bind(keys).bind(fingerprints(&identities));
        let query = query.bind(each(rows, |row| &row.delivery.payload()[..]));
        let query = query.bind(each(rows, |row| envelope::seal(row.delivery)));
        let query = query.bind(each(rows, |row| number(row.attempts)));
        let query = query.bind(each(rows, |row| secs(row.state.unwrap_or(Duration::ZERO))));
        let query = query.bind(each(rows, |row| row.state.err().map(Reason::as_str)));
        let query = query.bind(each(rows, |row| error_text(row.error).into_owned().into_bytes()));
        let query = query.bind(each(rows, |row| row.calls)).bind(each(rows, |row| row.provider_key));
        let query = query.bind(each(rows, |row| row.answer.map(CallAnswer::as_bytes)));
        let query = query.bind(each(rows, |row| row.call_name));
        let query = query.bind(each(rows, |row| row.called_at.map(rows::micros)));
        let stored = txn.ask_about(About::Payloads, query).await?;
        let mut ids = HashMap::<(i32, &[u8], &[u8]), i64>::with_capacity(stored.len());
        for row in &stored {
            ids.insert((row.try_get(1)?, row.try_get(2)?, row.try_get(3)?), row.try_get(0)?);
        }
        let id = |Identity { handler, key, fingerprint }: &Identity| {
            ids.get(&(handler.0, key.as_bytes(), fingerprint.as_bytes())).copied().ok_or_else(not_stored)
        };
        identities.into_iter().map(id).collect()
    }

    async fn start(&self, txn: &mut Txn, rows: &[&Row], state: ClaimState) -> Answer<Vec<bool>> {
        let ids = rows.iter().map(|row| row.id).collect::<Vec<_>>();
        let tokens = rows.iter().map(|row| row.locked_by).collect::<Vec<_>>();
        let runs = state == ClaimState::Processed;
        let lock_timeout = if runs { txn.lock_timeout() } else { txn.lock_wait.to_string() };
        let query = self.query(inbox_sql::START).bind(&ids).bind(&tokens).bind(lock_timeout).bind(runs);
        let found = txn.ask(query).await?;
        let Some(found) = found.first() else { return Ok(vec![false; rows.len()]) };
        let started: HashSet<i64> = found.try_get::<Vec<i64>, _>(0)?.into_iter().collect();
        if runs {
            let first = rows.iter().find(|row| started.contains(&row.id)).map(|row| &row.identity);
            txn.guard(found.try_get(1)?, first);
            txn.batch = rows.len() > 1;
        }
        Ok(ids.iter().map(|id| started.contains(id)).collect())
    }

    async fn poll_due(&self, handlers: &[HandlerId], lease: Duration, since: LookBack) -> Answer<DueRows> {
        let query = self.query(&inbox_sql::poll_due()).bind(ids(handlers)).bind(over(lease));
        let rows = self.ask(query.bind(back(since.ordinary)).bind(back(since.orphan))).await?;
        let (ordinary, orphan, alone, crashed): (bool, bool, bool, bool) = rows::one(&rows)?;
        Ok(DueRows { ordinary, orphan, alone, crashed })
    }

    async fn fetch(&self, handlers: &[FetchFor], limit: FetchLimit, token: Uuid) -> Answer<FetchedRows> {
        let [rows, bytes] = [limit.rows, limit.bytes].map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let query = self.query(&inbox_sql::fetch(limit.kind)).bind(each(handlers, |of| of.handler.0)).bind(rows);
        let query = query.bind(token).bind(each(handlers, |of| secs(of.lease))).bind(bytes).bind(back(limit.since));
        let (fetched, since) = self.ask_since(About::Nothing, query.bind(each(handlers, |of| &*of.call))).await?;
        Ok(FetchedRows { rows: rows::all(&fetched)?, since })
    }

    async fn date_call(&self, row: &Row, lease: Duration) -> Answer<Option<Instant>> {
        let query = self.shared(statements::DATE_CALL).bind(row.id).bind(row.locked_by).bind(interval(lease));
        let (dated, since) = self.ask_since(About::Nothing, query).await?;
        Ok((!dated.is_empty()).then_some(since))
    }

    async fn release_calls(&self, handlers: &[HandlerId]) -> Answer<LeftCalls> {
        let query = self.query(&inbox_sql::release_calls()).bind(ids(handlers)).bind(i64::from(RELEASED_AT_ONCE));
        let rows = self.ask(query).await?;
        let (released, in_doubt): (i64, i64) = rows::one(&rows)?;
        Ok(LeftCalls { released: released.unsigned_abs(), in_doubt: in_doubt.unsigned_abs() })
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Answer<()> {
        self.ask(self.query(inbox_sql::EXTEND).bind(ids).bind(token).bind(secs(lease))).await.map(|_| ())
    }

    async fn rows_by_token(&self, token: Uuid) -> Answer<Vec<Row>> {
        rows::all(&self.ask(self.query(&inbox_sql::rows_by_token()).bind(token)).await?)
    }

    async fn record_result(&self, row: &Row, result: &RowResult) -> Answer<bool> {
        let ((attempts, starts, lost), due, reason, error) = match result {
            RowResult::Failed { next, error } => ((1, 0, 0), next.ok(), next.err(), Some(error)),
            RowResult::Broke { due, error } => ((0, 1, 1), Some(*due), None, Some(error)),
            RowResult::Snoozed { due } => ((0, 1, 0), Some(*due), None, None),
            RowResult::Released { due } => ((0, 0, 0), Some(*due), None, None),
            RowResult::Dead { reason, error } => ((0, 0, 0), None, Some(*reason), Some(error)),
            RowResult::LeftToCall { provider_key } => {
                let query = self.shared(statements::LEAVE_TO_CALL).bind(row.id).bind(row.locked_by);
                return Ok(!self.ask(query.bind(provider_key)).await?.is_empty());
            }
            RowResult::Refunded => {
                return match self.ask(self.shared(statements::REFUND_START).bind(row.id)).await {
                    // The row is running, and its outcome sets the starts.
                    Err(StoreError::LockTimeout) => Ok(true),
                    answer => answer.map(|_| true),
                };
            }
            RowResult::Called(result) => {
                let CallResult { answer, next, error, is_attempt, is_unused, in_doubt, is_question } = result;
                let query = self.shared(statements::RECORD_CALL).bind(row.id).bind(row.locked_by);
                let query = query.bind(i32::from(*is_attempt)).bind(answer.as_ref().map(CallAnswer::as_bytes));
                let query = query.bind(interval(next.unwrap_or_default())).bind(next.err().map(Reason::as_str));
                let query = query.bind(error.as_deref().map(error_text)).bind(*is_unused).bind(*in_doubt);
                let query = query.bind(*is_question).bind(row.provider_key);
                return Ok(!self.ask_about(About::Messages, query).await?.is_empty());
            }
        };
        let query = self.shared(statements::RECORD_RESULT).bind(row.id).bind(row.locked_by);
        let query = query.bind(attempts).bind(starts).bind(lost).bind(due.map(interval));
        let query = query.bind(reason.map(Reason::as_str)).bind(error.map(|error| error_text(error).into_owned()));
        Ok(!self.ask_about(About::Messages, query).await?.is_empty())
    }

    async fn is_scheduled(&self, identity: &Identity) -> Answer<bool> {
        let query = self.shared(statements::IS_SCHEDULED).bind(identity.handler.0);
        Ok(!self.ask(query.bind(identity.key.as_bytes())).await?.is_empty())
    }

    async fn dead_letter_crashed(&self, handlers: &[HandlerId], lease: Duration) -> Answer<Vec<Row>> {
        let query = self.query(&inbox_sql::dead_letter_crashed()).bind(ids(handlers)).bind(over(lease));
        rows::all(&self.ask(query).await?)
    }
}
