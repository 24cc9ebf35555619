//! The inbox rows of a tapped store.

use std::time::{Duration, Instant};

use idem_core::Store;
use idem_core::store::{
    ClaimState, DueRows, FetchFor, FetchLimit, FetchedRows, HandlerId, Identity, InboxRows, LeftCalls, LookBack,
    NewRow, Row, RowKind, RowResult, StoreError,
};
use uuid::Uuid;

use crate::harness::Crash;

use super::calling::key;
use super::doing::OF_ROW;
use super::fetching::{answered, crashed, leased, recorded};
use super::{StoreTap, TappedStore, TappedTxn};

impl<S: Store, T: StoreTap> TappedStore<S, T> {
    async fn fetch_calls(
        &self,
        callers: &[FetchFor],
        limit: FetchLimit,
        token: Uuid,
    ) -> Result<FetchedRows, StoreError> {
        self.tap.before("fetch_calls", &[]).await?;
        if limit.since.is_none() {
            self.tap.before("fetch_all_calls", &[]).await?;
        }
        if !self.tap.may_fetch_calls() {
            return Ok(FetchedRows { rows: Vec::new(), since: Instant::now() });
        }
        let changed = |caller: &FetchFor| FetchFor { lease: self.tap.lease_of_call(caller.lease), ..caller.clone() };
        let changed: Vec<FetchFor> = callers.iter().map(changed).collect();
        let step = self.begins_any("call-fetched").await;
        let fetched = self.tap.watched("fetch_calls", self.within.fetch(&changed, limit, token)).await;
        self.fetches.answered(step, callers, token, &fetched);
        let mut fetched = fetched?;
        for row in &mut fetched.rows {
            let asked = callers.iter().find(|caller| caller.handler == row.identity.handler);
            self.tap.fetched_for_call(row, asked.map_or(Duration::ZERO, |caller| caller.lease));
        }
        if !fetched.rows.is_empty() {
            self.tap.before("fetched_calls", &[]).await?;
            fetched.since = self.tap.since(fetched.since);
        }
        Ok(fetched)
    }
}

impl<S: Store, T: StoreTap> InboxRows for TappedStore<S, T> {
    async fn insert(&self, txn: &mut TappedTxn<S::Txn, T>, rows: &[NewRow<'_>]) -> Result<Vec<i64>, StoreError> {
        for row in rows {
            self.tap.before("insert", row.identity.key.as_bytes()).await?;
        }
        let inserted = self.tap.statement(self.within.insert(&mut txn.within, rows)).await?;
        rows.iter().for_each(|row| txn.doing.inserted(row));
        Ok(inserted)
    }

    async fn start(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        rows: &[&Row],
        state: ClaimState,
    ) -> Result<Vec<bool>, StoreError> {
        if state == ClaimState::Waiting {
            return self.tap.statement(self.within.start(&mut txn.within, rows, state)).await;
        }
        for row in rows {
            self.tap.before("start", row.identity.key.as_bytes()).await?;
        }
        let mut steps = Vec::with_capacity(rows.len());
        for row in rows {
            steps.push(self.begins("started", &row.identity, String::new()).await);
        }
        let started = self.tap.statement(self.within.start(&mut txn.within, rows, state)).await;
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

    async fn poll_due(&self, handlers: &[HandlerId], lease: Duration, since: LookBack) -> Result<DueRows, StoreError> {
        self.tap.before("poll_due", &[]).await?;
        self.tap.looks_back("poll for rows", since.ordinary);
        self.tap.looks_back("poll for orphaned rows", since.orphan);
        self.within.poll_due(handlers, lease, since).await
    }

    async fn fetch(&self, handlers: &[FetchFor], limit: FetchLimit, token: Uuid) -> Result<FetchedRows, StoreError> {
        let search = match limit.kind {
            RowKind::Ordinary => "fetch of rows",
            RowKind::Orphan | RowKind::Alone => "fetch of an orphaned row",
            RowKind::Calling => return self.fetch_calls(handlers, limit, token).await,
        };
        let step = self.begins_any("fetched").await;
        self.tap.looks_back(search, limit.since);
        let fetched = self.tap.statement(self.within.fetch(handlers, limit, token)).await;
        self.fetches.answered(step, handlers, token, &fetched);
        let fetched = fetched?;
        for row in &fetched.rows {
            self.tap.before("row_is_fetched", row.identity.key.as_bytes()).await?;
        }
        Ok(fetched)
    }

    async fn date_call(&self, row: &Row, lease: Duration) -> Result<Option<Instant>, StoreError> {
        self.tap.before("date_call", row.identity.key.as_bytes()).await?;
        let lease = self.tap.lease_of_call(lease);
        let step = self.begins("call-dated", &row.identity, format!("{} {}", key(row), leased(lease))).await;
        let dated = self.tap.statement(self.within.date_call(row, lease)).await;
        answered(step, dated.as_ref().map(Option::is_some));
        let dated = dated?;
        if dated.is_none() {
            self.tap.call_has_ended();
        }
        self.tap.before("call_is_dated", row.identity.key.as_bytes()).await?;
        Ok(dated.map(|since| self.tap.since(since)))
    }

    async fn release_calls(&self, handlers: &[HandlerId]) -> Result<LeftCalls, StoreError> {
        self.within.release_calls(handlers).await
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), StoreError> {
        self.within.extend(token, ids, lease).await
    }

    async fn rows_by_token(&self, token: Uuid) -> Result<Vec<Row>, StoreError> {
        self.tap.before("rows_by_token", &[]).await?;
        let rows = self.within.rows_by_token(token).await?;
        self.fetches.found(token, &rows);
        Ok(rows)
    }

    async fn record_result(&self, row: &Row, result: &RowResult) -> Result<bool, StoreError> {
        let key = row.identity.key.as_bytes();
        let (method, answer) = match result {
            RowResult::Refunded => ("refund_start", Some("start_is_refunded")),
            RowResult::Called(_) => ("record_call", Some("call_is_recorded")),
            _ => ("record_result", None),
        };
        self.tap.before(method, key).await?;
        let (name, values) = recorded(row, result);
        let step = self.begins(name, &row.identity, values).await;
        let record = self.within.record_result(row, result);
        let is_call = matches!(result, RowResult::Called(_));
        let recorded = match is_call {
            true => self.tap.watched(method, record).await,
            false => self.tap.statement(record).await,
        };
        answered(step, recorded.as_ref().copied());
        if is_call {
            self.tap.call_has_ended();
        }
        let recorded = recorded?;
        // The answer may be lost.
        if let Some(answer) = answer {
            self.tap.before(answer, key).await?;
        }
        Ok(recorded)
    }

    async fn is_scheduled(&self, identity: &Identity) -> Result<bool, StoreError> {
        self.tap.before("is_scheduled", identity.key.as_bytes()).await?;
        self.tap.statement(self.within.is_scheduled(identity)).await
    }

    async fn dead_letter_crashed(&self, handlers: &[HandlerId], lease: Duration) -> Result<Vec<Row>, StoreError> {
        let step = self.begins_any("crashed").await;
        let rows = self.within.dead_letter_crashed(handlers, lease).await;
        crashed(step, &rows);
        rows
    }
}
