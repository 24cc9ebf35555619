//! Consumers: their handlers, each of which is a small integer, and what operators do with their dead letters.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::answer::of_operator;
use super::consumers_sql::{self, CALLS, INTERN, KEEP, KNOWN, PROCESSES, ROWS, SEEN, STALE, STATS};
use super::sql::{self, bound, duration, ids, json, millis, row};
use super::{Sqlite, Txn, prune};
use crate::store::sql::statements::{self, in_order};
use crate::store::{
    Answer, By, Consumers, HandlerId, HandlerMark, KnownHandler, NUMBERS, Of, Question, Replay, Replayed, Resolution,
    Row, Stats, Value, next_provider_key, number,
};

impl Consumers for Sqlite {
    async fn register(&self, consumer: &str, names: &[&str]) -> Answer<Vec<HandlerId>> {
        let work = async |txn: &mut Txn| {
            let mut handlers = Vec::with_capacity(names.len());
            for name in names {
                handlers.push(HandlerId(self.intern(txn.connection(), consumer, name).await?));
            }
            Ok(handlers)
        };
        self.in_transaction(work).await
    }

    async fn rename(&self, consumer: &str, old: &str, new: &str) -> Answer<bool> {
        let rename = async |txn: &mut Txn| {
            let before = known(txn.connection(), consumer, old).await?;
            let after = known(txn.connection(), consumer, new).await?;
            let (id, is_old) = match (before, after) {
                (Some(before), Some(after)) if before == after => return Ok(true),
                (Some(before), Some(after)) if forget(txn.connection(), after).await? => (before, true),
                (Some(before), Some(after)) if forget(txn.connection(), before).await? => (after, false),
                (Some(_), Some(_)) => return Ok(false),
                (Some(before), None) => (before, true),
                (None, Some(after)) => (after, false),
                (None, None) => (self.intern(txn.connection(), consumer, old).await?, true),
            };
            if is_old {
                sql::query(statements::KEEP_NAME).bind(id).execute(txn.connection()).await?;
            }
            let (statement, name) = if is_old { (statements::RENAME, new) } else { (statements::ADD_FORMER_NAME, old) };
            sql::query(statement).bind(id).bind(name).execute(txn.connection()).await?;
            Ok(true)
        };
        self.in_transaction(rename).await
    }

    /// Reads first, because reading never waits: then only one of the file's workers has to write that it has them.
    async fn mark(&self, handlers: &[HandlerId], mark: HandlerMark) -> Answer<bool> {
        let handlers = ids(handlers);
        let (stale, are_there): (i64, bool) = self.read_one(sql::query(STALE).bind(&handlers)).await?;
        let change = match mark {
            HandlerMark::Seen if stale == 0 => return Ok(are_there),
            HandlerMark::Seen => SEEN,
            HandlerMark::Processes => PROCESSES,
            HandlerMark::Calls => CALLS,
        };
        self.change(sql::query(change).bind(&handlers)).await.map(|_| are_there)
    }

    async fn handlers(&self, consumer: Option<&str>) -> Answer<Vec<KnownHandler>> {
        let known = |row: &SqliteRow| {
            Ok(KnownHandler {
                id: HandlerId(row.try_get("id")?),
                consumer: row.try_get("consumer")?,
                name: row.try_get("name")?,
                formerly: serde_json::from_str(row.try_get("former_names")?).unwrap_or_default(),
                seen: duration(row.try_get("seen")?),
                retention: row.try_get::<Option<i64>, _>("retention")?.map(duration),
                has_claims: row.try_get("has_claims")?,
                has_processed: row.try_get("has_processed")?,
                has_rows: row.try_get("has_rows")?,
                namespace: row.try_get("namespace")?,
            })
        };
        self.read_all(sql::query(KNOWN).bind(consumer), known).await
    }

    async fn stats(&self, handlers: &[HandlerId]) -> Answer<Stats> {
        let stats: (i64, i64, Option<i64>) = self.read_one(sql::query(STATS).bind(ids(handlers))).await?;
        let (scheduled, dead, oldest) = stats;
        let (scheduled, dead) = (scheduled.unsigned_abs(), dead.unsigned_abs());
        Ok(Stats { scheduled, dead, oldest_due: oldest.map(duration) })
    }

    async fn rows(&self, ids: &[i64]) -> Answer<Vec<Row>> {
        let mut rows = self.read_all(sql::query(ROWS).bind(json(ids)), row).await?;
        rows.sort_by_cached_key(|row| ids.iter().position(|id| *id == row.id));
        Ok(rows)
    }

    /// Under another key, claims it for the row, then moves the row to it; from then on the row owns its claim.
    async fn replay(&self, of: Of<'_>, how: Replay<'_>, by: &By) -> Answer<Vec<(i64, Replayed)>> {
        let flag = |is_so: bool| Value::from(i64::from(is_so));
        let (values, statements) = match how {
            Replay::As(key) => {
                let key = [Value::from(key.as_bytes().to_vec())];
                (values(of.first(), &how.action(), by, key), consumers_sql::replay_as())
            }
            Replay::Plain | Replay::Forced | Replay::NewKeys => {
                let flags = [flag(how == Replay::Forced), flag(how == Replay::NewKeys)];
                (values(of, &how.action(), by, flags), consumers_sql::replay())
            }
        };
        let replay = async |txn: &mut Txn| {
            let connection = txn.connection();
            let is_free = match how {
                Replay::As(_) => {
                    bound(&consumers_sql::claim(), &values).execute(&mut *connection).await?.rows_affected() > 0
                }
                Replay::Plain | Replay::Forced | Replay::NewKeys => true,
            };
            let done = if is_free { change(&mut *connection, &statements, &values).await? } else { Vec::new() };
            let mut answers: Vec<_> = done.into_iter().map(|id| (id, how.answer(true, ""))).collect();
            for row in bound(&consumers_sql::left(), &values).fetch_all(connection).await? {
                answers.push((row.try_get(0)?, how.answer(false, row.try_get(1)?)));
            }
            Ok(answers)
        };
        Ok(in_order(of.ids, self.in_transaction(replay).await.map_err(of_operator)?))
    }

    async fn resolve(&self, of: Of<'_>, provider_key: Option<Uuid>, how: &Resolution, by: &By) -> Answer<Vec<i64>> {
        let of = if provider_key.is_some() { of.first() } else { of };
        let key = |key: Option<Uuid>| Value::Bytes(key.map(|key| key.as_bytes().to_vec()));
        let answer = match how {
            Resolution::Answer(answer) => Some(answer.as_bytes().to_vec()),
            Resolution::CallAgain | Resolution::Discard => None,
        };
        let next = provider_key.map(next_provider_key);
        let values = values(of, how.action(), by, [key(provider_key), Value::Bytes(answer), key(next)]);
        let resolve = async |txn: &mut Txn| match how {
            Resolution::Discard => change(txn.connection(), &consumers_sql::discard(), &values).await,
            Resolution::Answer(_) | Resolution::CallAgain => {
                change(txn.connection(), &consumers_sql::resolve(), &values).await
            }
        };
        self.in_transaction(resolve).await.map_err(of_operator)
    }

    async fn ask(&self, question: &Question, values: &[Value]) -> Answer<Vec<String>> {
        let query = bound(&question.sqlite, values);
        let rows = match question.writes {
            // Its text may have several statements.
            true => self.in_transaction(async |txn| texts(&query.fetch_all(txn.connection()).await?)).await,
            false => self.ask_patiently(question.patience, query, texts).await,
        };
        rows.map_err(of_operator)
    }

    async fn prune(&self) -> Answer<u64> {
        // First, so that whoever may not write is told so.
        for (text, kept) in statements::PRUNED {
            self.change(sql::query(text).bind(millis(kept))).await.map_err(of_operator)?;
        }
        prune::prune(self).await
    }
}

impl Sqlite {
    /// Interns the name of a handler, and raises its retention, on this connection. Returns the number of the handler.
    pub(super) async fn intern(
        &self,
        connection: &mut SqliteConnection,
        consumer: &str,
        name: &str,
    ) -> sqlx::Result<i32> {
        self.intern_for(connection, consumer, name, self.retention).await
    }

    /// The same with another retention.
    pub(super) async fn intern_for(
        &self,
        connection: &mut SqliteConnection,
        consumer: &str,
        name: &str,
        retention: Duration,
    ) -> sqlx::Result<i32> {
        let retention = millis(retention);
        for attempt in 0..=NUMBERS {
            if let Some(id) = known(&mut *connection, consumer, name).await? {
                sql::query(KEEP).bind(id).bind(retention).execute(connection).await?;
                return Ok(id);
            }
            let query = sql::query(INTERN).bind(consumer).bind(name).bind(retention);
            query.bind(number(&[consumer, name], attempt)).execute(&mut *connection).await?;
        }
        Err(sqlx::Error::RowNotFound)
    }
}

/// Returns the values of an operator's statements.
fn values<const N: usize>(of: Of<'_>, action: &str, by: &By, more: [Value; N]) -> Vec<Value> {
    let command = by.command.as_bytes().to_vec();
    let consumer = of.consumer.map(ToOwned::to_owned);
    let first: [Value; 5] =
        [json(of.ids).into(), consumer.into(), command.into(), action.into(), by.actor.as_str().into()];
    first.into_iter().chain(more).collect()
}

/// Runs an operator's statements, of which the last one returns the ids of the rows that it changes.
async fn change(connection: &mut SqliteConnection, statements: &[String], values: &[Value]) -> sqlx::Result<Vec<i64>> {
    let mut ids = Vec::new();
    for text in statements {
        let rows = bound(text, values).fetch_all(&mut *connection).await?;
        ids = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<Vec<i64>>>()?;
    }
    Ok(ids)
}

/// The first column of an answer.
fn texts(rows: &[SqliteRow]) -> sqlx::Result<Vec<String>> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Returns the number of a handler by its name, also by a former one.
async fn known(connection: &mut SqliteConnection, consumer: &str, name: &str) -> sqlx::Result<Option<i32>> {
    sqlx::query_scalar(sql::filled(statements::NUMBER)).bind(consumer).bind(name).fetch_optional(connection).await
}

/// Deletes a handler to which nothing belongs. Returns whether it has done so.
async fn forget(connection: &mut SqliteConnection, id: i32) -> sqlx::Result<bool> {
    Ok(sql::query(statements::FORGET).bind(id).execute(connection).await?.rows_affected() == 1)
}
