//! Inbox rows in their call phase.

use std::time::{Duration, Instant};

use sqlx::Row as _;
use uuid::Uuid;

use crate::Error;
use crate::store::{
    CallAnswer, CallResult, CallRows, Caller, HandlerId, LeftCalls, RELEASED_AT_ONCE, Row, StoreError, TakenCalls,
    error_text,
};

use super::answer::About;
use super::rows::{self, back, secs};
use super::{Postgres, calls_sql};

impl CallRows for Postgres {
    async fn take_calls(
        &self,
        callers: &[Caller],
        limit: usize,
        since: Option<Duration>,
        token: Uuid,
    ) -> Result<TakenCalls, StoreError> {
        let handlers: Vec<i32> = callers.iter().map(|caller| caller.handler.0).collect();
        let leases: Vec<f64> = callers.iter().map(|caller| secs(caller.lease)).collect();
        let names: Vec<&str> = callers.iter().map(|caller| &*caller.name).collect();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = self.query(&calls_sql::take()).bind(handlers).bind(limit).bind(token).bind(leases).bind(names);
        let (taken, since) = self.ask_since(About::Nothing, query.bind(back(since))).await?;
        Ok(TakenCalls::new(rows::all(&taken)?, since))
    }

    async fn record_call(&self, row: &Row, result: &CallResult) -> Result<bool, StoreError> {
        let CallResult { answer, next, error, is_attempt, is_unused, in_doubt, is_question } = result;
        let query = self.query(calls_sql::RECORD).bind(row.id).bind(row.locked_by).bind(i32::from(*is_attempt));
        let query = query.bind(answer.as_ref().map(CallAnswer::as_bytes)).bind(secs(next.unwrap_or_default()));
        let query = query
            .bind(next.err().map(crate::Reason::as_str))
            .bind(error.as_deref().map(|error| error_text(error).into_owned().into_bytes()));
        let query = query.bind(*is_unused).bind(*in_doubt).bind(*is_question).bind(row.provider_key);
        Ok(!self.ask_about(About::Messages, query).await?.is_empty())
    }

    async fn date_call(&self, row: &Row, lease: Duration) -> Result<Option<Instant>, StoreError> {
        let query = self.query(calls_sql::DATE).bind(row.id).bind(row.locked_by).bind(secs(lease));
        let (dated, since) = self.ask_since(About::Nothing, query).await?;
        Ok((!dated.is_empty()).then_some(since))
    }

    async fn release_calls(&self, handlers: &[HandlerId]) -> Result<LeftCalls, StoreError> {
        let query = self.query(&calls_sql::release()).bind(rows::ids(handlers)).bind(i64::from(RELEASED_AT_ONCE));
        let rows = self.ask(query).await?;
        let Some(row) = rows.first() else { return Ok(LeftCalls::default()) };
        let (released, in_doubt): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok(LeftCalls::new(released.unsigned_abs(), in_doubt.unsigned_abs()))
    }

    async fn call_namespace(&self, handler: HandlerId) -> Result<Uuid, Error> {
        let failed = |fault: StoreError| Error::database("could not register a namespace of calls", fault);
        self.namespace(handler).await.map_err(failed)
    }
}

impl Postgres {
    /// Returns the namespace of the calls of a handler, which is made here if there is none.
    async fn namespace(&self, handler: HandlerId) -> Result<Uuid, StoreError> {
        self.ask(self.query(calls_sql::STORE_NAMESPACE).bind(handler.0)).await?;
        // In a separate statement, which sees what another worker has inserted meanwhile.
        let rows = self.ask(self.query(calls_sql::NAMESPACE).bind(handler.0)).await?;
        let hidden = || StoreError::Unavailable("the table `call_namespaces` hides the row of the handler".into());
        Ok(rows.first().ok_or_else(hidden)?.try_get(0)?)
    }
}
