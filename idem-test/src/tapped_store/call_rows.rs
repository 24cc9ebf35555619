//! The rows in their call phase of a tapped store.

use std::time::{Duration, Instant};

use idem_core::store::{CallResult, CallRows, Caller, HandlerId, LeftCalls, Row, StoreError, TakenCalls};
use idem_core::{Error, Store};
use uuid::Uuid;

use super::calling::{key, recorded};
use super::taking::{answered, leased};
use super::{StoreTap, TappedStore};

impl<S: Store, T: StoreTap> CallRows for TappedStore<S, T> {
    async fn take_calls(
        &self,
        callers: &[Caller],
        limit: usize,
        since: Option<Duration>,
        token: Uuid,
    ) -> Result<TakenCalls, StoreError> {
        self.tap.before("take_calls", &[]).await?;
        if since.is_none() {
            self.tap.before("take_all_calls", &[]).await?;
        }
        if !self.tap.may_take_calls() {
            return Ok(TakenCalls::new(Vec::new(), Instant::now()));
        }
        let changed = |caller: &Caller| Caller { lease: self.tap.lease_of_call(caller.lease), ..caller.clone() };
        let changed: Vec<Caller> = callers.iter().map(changed).collect();
        let step = self.begins_any("call-taken").await;
        let take = self.within.take_calls(&changed, limit, since, token);
        let taken = self.tap.watched("take_calls", take).await;
        self.called.answered(step, callers, token, &taken);
        let mut taken = taken?;
        for row in &mut taken.rows {
            let asked = callers.iter().find(|caller| caller.handler == row.identity.handler);
            self.tap.taken_for_call(row, asked.map_or(Duration::ZERO, |caller| caller.lease));
        }
        if !taken.rows.is_empty() {
            self.tap.before("taken_calls", &[]).await?;
            taken.since = self.tap.since(taken.since);
        }
        Ok(taken)
    }

    async fn record_call(&self, row: &Row, result: &CallResult) -> Result<bool, StoreError> {
        self.tap.before("record_call", row.identity.key.as_bytes()).await?;
        let (name, values) = recorded(row, result);
        let step = self.begins(name, &row.identity, values).await;
        let recorded = self.tap.watched("record_call", self.within.record_call(row, result)).await;
        answered(step, recorded.as_ref().copied());
        self.tap.call_has_ended();
        let recorded = recorded?;
        self.tap.before("call_is_recorded", row.identity.key.as_bytes()).await?;
        Ok(recorded)
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

    async fn call_namespace(&self, handler: HandlerId) -> Result<Uuid, Error> {
        self.within.call_namespace(handler).await
    }
}
