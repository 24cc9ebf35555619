//! Consumers: their handlers, each of which is a small integer, and what operators do with their dead letters.

use std::collections::HashSet;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::Reason;
use crate::store::sql::statements;
use crate::store::{
    Answer, Consumers, Filter, HandlerId, HandlerMark, KnownHandler, NUMBERS, Page, Replay, Replayed, Resolution, Row,
    Stats, StoreError, next_provider_key, number,
};

use super::answer::About;
use super::rows::{self, duration, ids, secs};
use super::{Postgres, consumers_sql};

impl Consumers for Postgres {
    async fn register(&self, consumer: &str, names: &[&str]) -> Answer<Vec<HandlerId>> {
        let retention = secs(self.0.retention);
        for attempt in 0..NUMBERS {
            let numbers: Vec<i32> = names.iter().map(|name| number(&[consumer, name], attempt)).collect();
            let intern = self.query(consumers_sql::INTERN).bind(consumer).bind(names).bind(retention).bind(numbers);
            self.ask(intern).await?;
            let mut found = Vec::with_capacity(names.len());
            for name in names {
                // In a separate statement, which sees the row that another worker has inserted meanwhile.
                found.extend(self.number_of(consumer, name).await?);
            }
            if found.len() < names.len() {
                continue;
            }
            self.ask(self.query(consumers_sql::KEEP).bind(ids(&found)).bind(retention)).await?;
            return Ok(found);
        }
        Err(StoreError::Unavailable("a handler was deleted while it was registered".into()))
    }

    /// Each statement leaves the names as they were or as they should be, so it may be repeated after any of them.
    async fn rename(&self, consumer: &str, old: &str, new: &str) -> Answer<bool> {
        let (before, after) = (self.number_of(consumer, old).await?, self.number_of(consumer, new).await?);
        let (id, is_old) = match (before, after) {
            (Some(before), Some(after)) if before == after => return Ok(true),
            (Some(before), Some(after)) if self.forget(after).await? => (before, true),
            (Some(before), Some(after)) if self.forget(before).await? => (after, false),
            (Some(_), Some(_)) => return Ok(false),
            (Some(before), None) => (before, true),
            (None, Some(after)) => (after, false),
            (None, None) => match self.register(consumer, &[old]).await?.first() {
                Some(id) => (*id, true),
                None => return Ok(true),
            },
        };
        if is_old {
            self.ask(self.shared(statements::KEEP_NAME).bind(id.0)).await?;
        }
        let (statement, name) = if is_old { (statements::RENAME, new) } else { (statements::ADD_FORMER_NAME, old) };
        self.ask(self.shared(statement).bind(id.0).bind(name)).await.map(|_| true)
    }

    async fn mark(&self, handlers: &[HandlerId], mark: HandlerMark) -> Answer<bool> {
        let rows = self.ask(self.query(&consumers_sql::mark(mark)).bind(ids(handlers))).await?;
        let (there,): (i64,) = rows::one(&rows)?;
        Ok(there == handlers.iter().collect::<HashSet<_>>().len() as i64)
    }

    async fn handlers(&self, consumer: Option<&str>) -> Answer<Vec<KnownHandler>> {
        let rows = self.ask(self.query(consumers_sql::KNOWN).bind(consumer)).await?;
        let known = |row: &PgRow| {
            Ok(KnownHandler {
                id: HandlerId(row.try_get(0)?),
                consumer: row.try_get(1)?,
                name: row.try_get(2)?,
                formerly: row.try_get(3)?,
                seen: duration(row.try_get(4)?),
                retention: row.try_get::<Option<i64>, _>(5)?.map(duration),
                has_claims: row.try_get(6)?,
                has_processed: row.try_get(7)?,
                has_rows: row.try_get(8)?,
                namespace: row.try_get(9)?,
            })
        };
        Ok(rows.iter().map(known).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn stats(&self, handlers: &[HandlerId]) -> Answer<Stats> {
        let rows = self.ask_long(self.query(consumers_sql::STATS).bind(ids(handlers))).await?;
        let (scheduled, dead, oldest): (i64, i64, Option<i64>) = rows::one(&rows)?;
        let [scheduled, dead] = [scheduled, dead].map(i64::unsigned_abs);
        Ok(Stats { scheduled, dead, oldest_due: oldest.map(duration) })
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Answer<Vec<Row>> {
        let which = if filter.scheduled { "state <> 'dead'" } else { "state = 'dead'" };
        let query =
            self.query(&consumers_sql::list(which)).bind(consumer).bind(page.before).bind(filter.handler.as_deref());
        let keys = filter.keys().map(|keys| keys.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>());
        let query = query.bind(filter.reason.map(Reason::as_str)).bind(i64::from(page.limit)).bind(keys);
        rows::all(&self.ask(query).await?)
    }

    async fn replay(&self, consumer: &str, id: i64, how: Replay<'_>) -> Answer<Replayed> {
        if let Replay::As(key) = how {
            let query = self.query(&consumers_sql::replay_as()).bind(consumer).bind(id).bind(key.as_bytes());
            let is_free: Option<bool> = self.ask(query).await?.first().map(|row| row.try_get(0)).transpose()?;
            return Ok(is_free.map_or(Replayed::NotFound, |is| if is { Replayed::Due } else { Replayed::KeyTaken }));
        }
        let query = self.shared(statements::REPLAY).bind(id).bind(consumer).bind(how == Replay::Forced);
        if !self.ask(query.bind(None::<&[u8]>)).await?.is_empty() {
            return Ok(Replayed::Due);
        }
        let found = self.ask(self.shared(statements::FIND).bind(id).bind(consumer)).await?;
        let reason: Option<String> = found.first().map(|row| row.try_get("reason")).transpose()?;
        Ok(Replayed::refused(reason.as_deref()))
    }

    async fn resolve(&self, consumer: &str, id: i64, provider_key: Option<Uuid>, how: &Resolution) -> Answer<bool> {
        let answer = match how {
            Resolution::Answer(answer) => Some(answer.as_bytes()),
            Resolution::CallAgain => None,
            Resolution::Discard => {
                let query = self.query(&consumers_sql::discard()).bind(consumer).bind(id).bind(provider_key);
                return Ok(!self.ask_about(About::Messages, query).await?.is_empty());
            }
        };
        let query = self.shared(statements::RESOLVE).bind(id).bind(consumer).bind(answer);
        let query = query.bind(provider_key.map(next_provider_key));
        Ok(!self.ask_about(About::Messages, query.bind(provider_key)).await?.is_empty())
    }

    async fn prune(&self) -> Answer<u64> {
        self.prune_claims().await
    }
}

impl Postgres {
    /// Returns the number of a handler by its name, also by a former one.
    async fn number_of(&self, consumer: &str, name: &str) -> Answer<Option<HandlerId>> {
        let found = self.ask(self.shared(statements::NUMBER).bind(consumer).bind(name)).await?;
        Ok(found.first().map(|row| row.try_get(0)).transpose()?.map(HandlerId))
    }

    /// Deletes a handler to which nothing belongs. Returns whether it has done so.
    async fn forget(&self, id: HandlerId) -> Answer<bool> {
        Ok(!self.ask(self.shared(statements::FORGET).bind(id.0)).await?.is_empty())
    }
}
