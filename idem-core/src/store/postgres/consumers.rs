//! Consumers: their handlers, each of which is a small integer, and what operators do with their dead letters.

use std::collections::HashSet;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::store::sql::statements::{self, in_order};
use crate::store::{
    Answer, By, Consumers, HandlerId, HandlerMark, KnownHandler, NUMBERS, Of, Question, Replay, Replayed, Resolution,
    Row, Stats, StoreError, Value, error_text, next_provider_key, number,
};

use super::answer::About;
use super::handle::Statement;
use super::rows::{self, duration, ids, interval, secs};
use super::{Postgres, consumers_sql, inbox_sql};

impl Consumers for Postgres {
    async fn register(&self, consumer: &str, names: &[&str]) -> Answer<Vec<HandlerId>> {
        self.register_for(consumer, names, secs(self.0.retention)).await
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

    async fn rows(&self, ids: &[i64]) -> Answer<Vec<Row>> {
        rows::all(&self.ask(self.query(&consumers_sql::rows()).bind(ids)).await?)
    }

    async fn replay(&self, of: Of<'_>, how: Replay<'_>, by: &By) -> Answer<Vec<(i64, Replayed)>> {
        let action = how.action();
        let query = match how {
            Replay::As(key) => self.change(&consumers_sql::replay_as(), of.first(), &action, by).bind(key.as_bytes()),
            Replay::Plain | Replay::Forced | Replay::NewKeys => {
                let query = self.change(&consumers_sql::replay(), of, &action, by);
                query.bind(how == Replay::Forced).bind(how == Replay::NewKeys)
            }
        };
        let found = self.changed(query).await?.into_iter();
        Ok(in_order(of.ids, found.map(|(id, reason, is_done)| (id, how.answer(is_done, &reason)))))
    }

    async fn resolve(&self, of: Of<'_>, provider_key: Option<Uuid>, how: &Resolution, by: &By) -> Answer<Vec<i64>> {
        let of = if provider_key.is_some() { of.first() } else { of };
        let answer = match how {
            Resolution::Answer(answer) => Some(answer.as_bytes()),
            Resolution::CallAgain | Resolution::Discard => None,
        };
        let query = match how {
            Resolution::Discard => self.change(&consumers_sql::discard(), of, how.action(), by).bind(provider_key),
            Resolution::Answer(_) | Resolution::CallAgain => {
                let query = self.change(&consumers_sql::resolve(), of, how.action(), by).bind(provider_key);
                query.bind(answer).bind(provider_key.map(next_provider_key))
            }
        };
        let found = self.changed(query).await?;
        Ok(found.into_iter().filter_map(|(id, _, is_done)| is_done.then_some(id)).collect())
    }

    async fn ask(&self, question: &Question, values: &[Value]) -> Answer<Vec<String>> {
        let query = self.shared(&inbox_sql::filled(&question.postgres));
        let query = values.iter().fold(query, |query, value| match value {
            Value::Int(number) => query.bind(*number),
            Value::Text(text) => query.bind(text.as_deref()),
            Value::Bytes(bytes) => query.bind(bytes.as_deref()),
        });
        let rows = match question.writes {
            true => self.ask_about(About::Operator, query).await?,
            false => self.ask_patiently(question.patience, query).await?,
        };
        // JSON comes as its text.
        Ok(rows.iter().map(|row| row.try_get_unchecked::<String, _>(0)).collect::<Result<_, sqlx::Error>>()?)
    }

    async fn prune(&self) -> Answer<u64> {
        // First, so that a role that may not delete is told so.
        for (text, kept) in statements::PRUNED {
            self.ask_about(About::Operator, self.shared(text).bind(interval(kept))).await?;
        }
        self.prune_claims().await
    }
}

impl Postgres {
    /// Interns names, as [`register`](Consumers::register) does, with a retention in seconds.
    pub(super) async fn register_for(&self, consumer: &str, names: &[&str], retention: f64) -> Answer<Vec<HandlerId>> {
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

    /// Returns an operator's statement with the first five of its values, see [`consumers_sql`].
    fn change<'q>(&self, text: &str, of: Of<'_>, action: &str, by: &By) -> Statement<'q> {
        let query = self.shared(text).bind(of.ids).bind(of.consumer).bind(by.command);
        query.bind(action).bind(error_text(&by.actor).as_ref())
    }

    /// Runs it. Returns the rows that it has found, their reasons, and whether it has changed them.
    async fn changed(&self, query: Statement<'_>) -> Answer<Vec<(i64, String, bool)>> {
        let _long = self.0.pool.long().await?;
        let rows = self.ask_about(About::Operator, query).await?;
        Ok(rows.iter().map(sqlx::FromRow::from_row).collect::<Result<_, sqlx::Error>>()?)
    }

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
