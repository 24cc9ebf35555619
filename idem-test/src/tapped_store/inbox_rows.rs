//! The inbox rows of a tapped store.

use std::time::Duration;

use idem_core::Store;
use idem_core::store::{
    DueRows, HandlerId, Identity, InboxRows, LookBack, NewRow, Row, RowKind, RowResult, StoreError, TakeLimit,
};
use uuid::Uuid;

use crate::harness::Crash;

use super::doing::OF_ROW;
use super::taking::{answered, crashed, recorded};
use super::{StoreTap, TappedStore, TappedTxn};

impl<S: Store, T: StoreTap> InboxRows for TappedStore<S, T> {
    async fn insert(&self, txn: &mut TappedTxn<S::Txn, T>, rows: &[NewRow<'_>]) -> Result<Vec<i64>, StoreError> {
        for row in rows {
            self.tap.before("insert", row.identity.key.as_bytes()).await?;
        }
        let inserted = self.tap.statement(self.within.insert(&mut txn.within, rows)).await?;
        rows.iter().for_each(|row| txn.doing.inserted(row));
        Ok(inserted)
    }

    async fn count_duplicates(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        identities: &[&Identity],
    ) -> Result<(), StoreError> {
        self.tap.statement(self.within.count_duplicates(&mut txn.within, identities)).await
    }

    async fn start(&self, txn: &mut TappedTxn<S::Txn, T>, rows: &[&Row]) -> Result<Vec<bool>, StoreError> {
        for row in rows {
            self.tap.before("start", row.identity.key.as_bytes()).await?;
        }
        let mut steps = Vec::with_capacity(rows.len());
        for row in rows {
            steps.push(self.begins("started", &row.identity, String::new()).await);
        }
        let started = self.tap.statement(self.within.start(&mut txn.within, rows)).await;
        for (place, (step, row)) in steps.into_iter().zip(rows).enumerate() {
            let has = started.as_ref().is_ok_and(|started| started[place]);
            txn.doing.begun(step, &row.identity, OF_ROW, has);
        }
        let started = started?;
        if started.contains(&true) {
            self.tap.reach(Crash::AfterClaim).await;
        }
        Ok(started)
    }

    async fn remove(&self, txn: &mut TappedTxn<S::Txn, T>, row: &Row) -> Result<bool, StoreError> {
        self.tap.statement(self.within.remove(&mut txn.within, row)).await
    }

    async fn poll_due(&self, handlers: &[HandlerId], lease: Duration, since: LookBack) -> Result<DueRows, StoreError> {
        self.tap.before("poll_due", &[]).await?;
        self.tap.looks_back("poll for rows", since.ordinary);
        self.tap.looks_back("poll for suspects", since.suspect);
        self.within.poll_due(handlers, lease, since).await
    }

    async fn take(
        &self,
        handlers: &[HandlerId],
        kind: RowKind,
        limit: TakeLimit,
        token: Uuid,
        lease: Duration,
    ) -> Result<Vec<Row>, StoreError> {
        let look = match kind {
            RowKind::Ordinary => "take of rows",
            RowKind::Suspect | RowKind::Alone => "take of a suspect",
        };
        let step = self.begins_any("taken").await;
        self.tap.looks_back(look, limit.since);
        let rows = self.tap.statement(self.within.take(handlers, kind, limit, token, lease)).await;
        self.takes.answered(step, (token, lease), &rows);
        let rows = rows?;
        for row in &rows {
            self.tap.before("row_is_taken", row.identity.key.as_bytes()).await?;
        }
        Ok(rows)
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), StoreError> {
        self.within.extend(token, ids, lease).await
    }

    async fn rows_by_token(&self, token: Uuid) -> Result<Vec<Row>, StoreError> {
        self.tap.before("rows_by_token", &[]).await?;
        let rows = self.within.rows_by_token(token).await?;
        self.takes.found(token, &rows);
        self.called.found(token, &rows);
        Ok(rows)
    }

    async fn record_result(&self, row: &Row, result: &RowResult) -> Result<bool, StoreError> {
        self.tap.before("record_result", row.identity.key.as_bytes()).await?;
        let (name, values) = recorded(row, result);
        let step = self.begins(name, &row.identity, values).await;
        let recorded = self.tap.statement(self.within.record_result(row, result)).await;
        answered(step, recorded.as_ref().copied());
        recorded
    }

    async fn is_scheduled(&self, identity: &Identity) -> Result<bool, StoreError> {
        self.tap.before("is_scheduled", identity.key.as_bytes()).await?;
        self.tap.statement(self.within.is_scheduled(identity)).await
    }

    async fn refund_start(&self, row: &Row) -> Result<(), StoreError> {
        self.tap.before("refund_start", row.identity.key.as_bytes()).await?;
        let step = self.begins("refunded", &row.identity, String::new()).await;
        let refunded = self.tap.statement(self.within.refund_start(row)).await;
        answered(step, refunded.as_ref().map(|()| true));
        refunded?;
        // The answer may be lost.
        self.tap.before("start_is_refunded", row.identity.key.as_bytes()).await
    }

    async fn dead_letter_crashed(&self, handlers: &[HandlerId], lease: Duration) -> Result<Vec<Row>, StoreError> {
        let step = self.begins_any("crashed").await;
        let rows = self.within.dead_letter_crashed(handlers, lease).await;
        crashed(step, &rows);
        rows
    }
}
