//! Inbox rows: inserted, taken, started, and their outcomes.

use std::time::Duration;

use sqlx::Row as _;
use uuid::Uuid;

use crate::store::{
    CRASHED_LEASES, CallAnswer, DueRows, HandlerId, Identity, InboxRows, LookBack, NewRow, Row, RowKind, RowResult,
    StoreError, TakeLimit, envelope, error_text,
};

use super::answer::About;
use super::rows::{self, back, ids, number, secs};
use super::{Postgres, Txn, many};

/// Returns for how many seconds the last lease must have expired.
fn over(lease: Duration) -> f64 {
    secs(lease.saturating_mul(CRASHED_LEASES))
}

impl InboxRows for Postgres {
    async fn insert(&self, txn: &mut Txn, row: &NewRow<'_>) -> Result<i64, StoreError> {
        let (due, reason) = match row.state {
            Ok(due) => (due, None),
            Err(reason) => (Duration::ZERO, Some(reason.as_str())),
        };
        let query = self.sql().insert.query().bind(row.identity.handler.0);
        let query = query.bind(row.identity.key.as_bytes()).bind(row.identity.fingerprint.as_bytes());
        let query = query.bind(&row.delivery.payload()[..]).bind(envelope::seal(row.delivery));
        let query = query.bind(number(row.attempts)).bind(secs(due)).bind(reason);
        let query = query.bind(error_text(row.error).as_bytes().to_vec());
        let query = query.bind(row.provider_key).bind(row.answer.map(CallAnswer::as_bytes));
        let query = query.bind(row.call_name).bind(row.called_at.map(rows::micros)).bind(row.calls);
        let rows = txn.ask_payloads(query).await?;
        let row = rows.first().ok_or_else(many::not_stored)?;
        Ok(row.try_get(0)?)
    }

    async fn insert_many(&self, txn: &mut Txn, rows: &[NewRow<'_>]) -> Result<(), StoreError> {
        many::insert_many(self, txn, rows).await
    }

    async fn count_duplicate(&self, txn: &mut Txn, identity: &Identity) -> Result<(), StoreError> {
        let query = self.sql().count_duplicate.query().bind(identity.handler.0);
        txn.ask(query.bind(identity.key.as_bytes()).bind(identity.fingerprint.as_bytes())).await.map(drop)
    }

    async fn count_duplicates(&self, txn: &mut Txn, ids: &[&Identity]) -> Result<(), StoreError> {
        many::count_duplicates(self, txn, ids).await
    }

    async fn start(&self, txn: &mut Txn, row: &Row) -> Result<bool, StoreError> {
        let lock_timeout = txn.lock_timeout();
        let rows = txn.ask(self.sql().start.query().bind(row.id).bind(row.locked_by).bind(lock_timeout)).await?;
        if let Some(answer) = rows.first() {
            txn.guard(answer.try_get(0)?, Some((row.identity.handler, row.identity.key.clone())));
        }
        Ok(!rows.is_empty())
    }

    async fn start_many(&self, txn: &mut Txn, rows: &[&Row]) -> Result<Vec<bool>, StoreError> {
        many::start_many(self, txn, rows).await
    }

    async fn remove(&self, txn: &mut Txn, row: &Row) -> Result<bool, StoreError> {
        Ok(!txn.ask(self.sql().remove.query().bind(row.id).bind(row.locked_by)).await?.is_empty())
    }

    async fn poll_due(&self, handlers: &[HandlerId], lease: Duration) -> Result<DueRows, StoreError> {
        self.poll_due_since(handlers, lease, LookBack::default()).await
    }

    async fn poll_due_since(
        &self,
        handlers: &[HandlerId],
        lease: Duration,
        since: LookBack,
    ) -> Result<DueRows, StoreError> {
        let query = self.sql().poll_due.query().bind(ids(handlers)).bind(over(lease));
        let rows = self.ask(query.bind(back(since.ordinary)).bind(back(since.suspect))).await?;
        let Some(row) = rows.first() else { return Ok(DueRows::default()) };
        Ok(DueRows {
            ordinary: row.try_get(0)?,
            suspect: row.try_get(1)?,
            alone: row.try_get(2)?,
            crashed: row.try_get(3)?,
        })
    }

    async fn take(
        &self,
        handlers: &[HandlerId],
        kind: RowKind,
        limit: TakeLimit,
        token: Uuid,
        lease: Duration,
    ) -> Result<Vec<Row>, StoreError> {
        let statement = match kind {
            RowKind::Ordinary => &self.sql().take_ordinary,
            RowKind::Suspect => &self.sql().take_suspect,
            RowKind::Alone => &self.sql().take_alone,
        };
        let since = back(limit.since);
        let [limit, bytes] = [limit.rows, limit.bytes].map(|limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let query =
            statement.query().bind(ids(handlers)).bind(limit).bind(token).bind(secs(lease)).bind(bytes).bind(since);
        let rows = self.ask(query).await?;
        rows::all_due(&rows)
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), StoreError> {
        self.ask(self.sql().extend.query().bind(ids).bind(token).bind(secs(lease))).await.map(|_| ())
    }

    async fn rows_by_token(&self, token: Uuid) -> Result<Vec<Row>, StoreError> {
        rows::all(&self.ask(self.sql().taken.query().bind(token)).await?)
    }

    async fn record_result(&self, row: &Row, result: &RowResult) -> Result<bool, StoreError> {
        if let RowResult::LeftToCall { provider_key } = result {
            return self.leave_to_call(row, *provider_key).await;
        }
        let (attempts, starts, breaks) = match result {
            RowResult::Failed { .. } => (1, 0, 0),
            RowResult::Broke { .. } => (0, 1, 1),
            RowResult::GivenBack { .. } => (0, 1, 0),
            RowResult::Dead { .. } | RowResult::Released { .. } | RowResult::LeftToCall { .. } => (0, 0, 0),
        };
        let (due, reason, error) = match result {
            RowResult::Failed { next: Ok(due), error } | RowResult::Broke { due, error } => {
                (Some(*due), None, Some(error))
            }
            RowResult::Failed { next: Err(reason), error } | RowResult::Dead { reason, error } => {
                (None, Some(reason.as_str()), Some(error))
            }
            RowResult::GivenBack { due } | RowResult::Released { due } => (Some(*due), None, None),
            RowResult::LeftToCall { .. } => (None, None, None),
        };
        let query =
            self.sql().record_result.query().bind(row.id).bind(row.locked_by).bind(attempts).bind(starts).bind(breaks);
        let query =
            query.bind(due.map(secs)).bind(reason).bind(error.map(|error| error_text(error).into_owned().into_bytes()));
        Ok(!self.ask_about(About::Messages, query).await?.is_empty())
    }

    async fn is_scheduled(&self, identity: &Identity) -> Result<bool, StoreError> {
        let query = self.sql().is_scheduled.query().bind(identity.handler.0);
        Ok(!self.ask(query.bind(identity.key.as_bytes())).await?.is_empty())
    }

    async fn refund_start(&self, row: &Row) -> Result<(), StoreError> {
        match self.ask(self.sql().refund_start.query().bind(row.id)).await {
            // The row is running, and its outcome sets the starts.
            Err(StoreError::LockTimeout) => Ok(()),
            answer => answer.map(|_| ()),
        }
    }

    async fn dead_letter_crashed(&self, handlers: &[HandlerId], lease: Duration) -> Result<Vec<Row>, StoreError> {
        rows::all(&self.ask(self.sql().dead_letter_crashed.query().bind(ids(handlers)).bind(over(lease))).await?)
    }
}
