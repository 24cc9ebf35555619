//! Inbox rows in their call phase.

use std::time::{Duration, Instant};

use sqlx::Row as _;
use uuid::Uuid;

use crate::Error;
use crate::store::{
    CallAnswer, CallResult, CallRows, Caller, HandlerId, LeftCalls, RELEASED_AT_ONCE, Resolution, Row, StoreError,
    TakenCalls, error_text, next_provider_key,
};

use super::Postgres;
use super::answer::About;
use super::rows::{self, back, secs};

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
        let query = self.sql().take_calls.query().bind(handlers).bind(limit).bind(token).bind(leases).bind(names);
        let (taken, since) = self.ask_since(About::Nothing, query.bind(back(since))).await?;
        Ok(TakenCalls::new(rows::all_due(&taken)?, since))
    }

    async fn calls_by_token(&self, token: Uuid) -> Result<Vec<Row>, StoreError> {
        rows::all(&self.ask(self.sql().calls_by_token.query().bind(token)).await?)
    }

    async fn record_call(&self, row: &Row, result: &CallResult) -> Result<bool, StoreError> {
        let CallResult { answer, next, error, is_attempt, is_unused, in_doubt, is_question } = result;
        let query = self.sql().record_call.query().bind(row.id).bind(row.locked_by).bind(i32::from(*is_attempt));
        let query = query.bind(answer.as_ref().map(CallAnswer::as_bytes)).bind(secs(next.unwrap_or_default()));
        let query = query
            .bind(next.err().map(crate::Reason::as_str))
            .bind(error.as_deref().map(|error| error_text(error).into_owned().into_bytes()));
        let query = query.bind(*is_unused).bind(*in_doubt).bind(*is_question).bind(row.provider_key);
        Ok(!self.ask_about(About::Messages, query).await?.is_empty())
    }

    async fn date_call(&self, row: &Row, lease: Duration) -> Result<Option<Instant>, StoreError> {
        let query = self.sql().date_call.query().bind(row.id).bind(row.locked_by).bind(secs(lease));
        let (dated, since) = self.ask_since(About::Nothing, query).await?;
        Ok((!dated.is_empty()).then_some(since))
    }

    async fn release_calls(&self, handlers: &[HandlerId]) -> Result<LeftCalls, StoreError> {
        let query = self.sql().release_calls.query().bind(rows::ids(handlers)).bind(i64::from(RELEASED_AT_ONCE));
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
        self.ask(self.sql().store_namespace.query().bind(handler.0)).await?;
        // In a separate statement, which sees what another worker has inserted meanwhile.
        let rows = self.ask(self.sql().call_namespace.query().bind(handler.0)).await?;
        let hidden = || StoreError::Unavailable("the table `call_namespaces` hides the row of the handler".into());
        Ok(rows.first().ok_or_else(hidden)?.try_get(0)?)
    }

    /// Moves a taken row to its call phase, with this key, unless it has one.
    pub(super) async fn leave_to_call(&self, row: &Row, provider_key: Uuid) -> Result<bool, StoreError> {
        let query = self.sql().leave_to_call.query().bind(row.id).bind(row.locked_by).bind(provider_key);
        Ok(!self.ask(query).await?.is_empty())
    }

    /// Does what an operator has decided about a call.
    pub(super) async fn resolve_call(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Uuid,
        resolution: &Resolution,
    ) -> Result<bool, StoreError> {
        let resolve = || self.sql().resolve.query().bind(consumer).bind(id);
        let next = next_provider_key(provider_key);
        let query = match resolution {
            Resolution::Answer(answer) => resolve().bind(Some(answer.as_bytes())).bind(provider_key).bind(next),
            Resolution::CallAgain => resolve().bind(None::<&[u8]>).bind(provider_key).bind(next),
            Resolution::Discard => self.sql().discard.query().bind(consumer).bind(id).bind(Some(provider_key)),
        };
        Ok(!self.ask_about(About::Messages, query).await?.is_empty())
    }
}
