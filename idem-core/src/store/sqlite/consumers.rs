//! Consumers: their handlers, each of which is a small integer, and what operators do with their dead letters.

use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::consumers_sql::{CALLS, DATE, DISCARD, INTERN, KEEP, KNOWN, LIST, PROCESSES, SEEN, STALE, STATS};
use super::sql::{self, duration, ids, in_hex, millis, row};
use super::{Sqlite, Txn, claims, prune};
use crate::store::sql::statements;
use crate::store::{
    Answer, CallAnswer, ClaimState, Consumers, Filter, HandlerId, HandlerMark, Identity, KnownHandler, NUMBERS, Page,
    Replay, Replayed, Resolution, Row, Stats, next_provider_key, number,
};
use crate::{Fingerprint, Reason};

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

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Answer<Vec<Row>> {
        let which = if filter.scheduled { "<> 'dead'" } else { "= 'dead'" };
        let query = sql::query(&LIST.replace("{which}", which)).bind(page.before.unwrap_or(i64::MAX));
        let query = query.bind(filter.reason.map(Reason::as_str)).bind(consumer).bind(filter.handler.as_deref());
        self.read_all(query.bind(page.limit).bind(filter.keys().map(|keys| in_hex(&keys))), row).await
    }

    /// For another key, claims it for the row, then moves the row to it; from then on the row owns its claim.
    async fn replay(&self, consumer: &str, id: i64, how: Replay<'_>) -> Answer<Replayed> {
        let replay = async |txn: &mut Txn| {
            let find =
                sqlx::query_as::<_, (i32, Vec<u8>, String)>(sql::filled(statements::FIND)).bind(id).bind(consumer);
            let found = find.fetch_optional(txn.connection()).await?;
            let Some((handler, fingerprint, reason)) = found else { return Ok(Replayed::NotFound) };
            let key = match how {
                Replay::As(_) if reason != Reason::Conflict.as_str() => return Ok(Replayed::NotFound),
                Replay::As(key) => {
                    let fingerprint = Fingerprint::stored(&fingerprint);
                    let identity = Identity { handler: HandlerId(handler), key: key.clone(), fingerprint };
                    if !claims::insert(txn.connection(), &identity, ClaimState::Waiting).await?.is_new() {
                        return Ok(Replayed::KeyTaken);
                    }
                    Some(key.as_bytes())
                }
                Replay::Plain | Replay::Forced => None,
            };
            let query = sql::query(statements::REPLAY).bind(id).bind(consumer).bind(how == Replay::Forced).bind(key);
            let done = query.execute(txn.connection()).await?.rows_affected() == 1;
            Ok(if done { Replayed::Due } else { Replayed::refused(Some(&reason)) })
        };
        self.in_transaction(replay).await
    }

    async fn resolve(&self, consumer: &str, id: i64, provider_key: Option<Uuid>, how: &Resolution) -> Answer<bool> {
        let answer = match how {
            Resolution::Answer(answer) => Some(answer),
            Resolution::CallAgain => None,
            Resolution::Discard => {
                // A conflict row and a row without a key own no claim: the claim of that key belongs to another message.
                let discard = async |txn: &mut Txn| {
                    let query = sqlx::query_as::<_, (i32, Vec<u8>, String)>(sql::filled(DISCARD)).bind(id);
                    let gone = query.bind(consumer).bind(provider_key).fetch_optional(txn.connection()).await?;
                    let Some((handler, key, reason)) = gone else { return Ok(false) };
                    if reason != Reason::Conflict.as_str() && !key.is_empty() {
                        sql::query(DATE).bind(handler).bind(key).execute(txn.connection()).await?;
                    }
                    Ok(true)
                };
                return self.in_transaction(discard).await;
            }
        };
        let query = sql::query(statements::RESOLVE).bind(id).bind(consumer);
        let query = query.bind(answer.map(CallAnswer::as_bytes)).bind(provider_key.map(next_provider_key));
        Ok(self.change(query.bind(provider_key)).await? == 1)
    }

    async fn prune(&self) -> Answer<u64> {
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
        let retention = millis(self.retention);
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

/// Returns the number of a handler by its name, also by a former one.
async fn known(connection: &mut SqliteConnection, consumer: &str, name: &str) -> sqlx::Result<Option<i32>> {
    sqlx::query_scalar(sql::filled(statements::NUMBER)).bind(consumer).bind(name).fetch_optional(connection).await
}

/// Deletes a handler to which nothing belongs. Returns whether it has done so.
async fn forget(connection: &mut SqliteConnection, id: i32) -> sqlx::Result<bool> {
    Ok(sql::query(statements::FORGET).bind(id).execute(connection).await?.rows_affected() == 1)
}
