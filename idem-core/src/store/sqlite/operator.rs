//! Operator queries: stats, list, replay, discard.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::calls_sql::RESOLVE;
use super::claims_sql::WAITING;
use super::operator_sql::{CONSUMERS, DATE, DEAD, DISCARD, FIND, REPLAY, SCHEDULED, STATS};
use super::sql::{NOW, duration, ids, row};
use super::{Sqlite, Txn, claims, prune};
use crate::store::{
    CallAnswer, ClaimState, Filter, HandlerId, HandlerRows, Identity, Operator, Page, Pruned, Remedies, Replayed,
    Resolution, Row, Stats, StoreError, next_provider_key,
};
use crate::{Fingerprint, Key, Reason};

/// The fields of a dead row that a replay needs.
struct Dead {
    handler: HandlerId,
    fingerprint: Fingerprint,
    reason: Option<Reason>,
}

async fn find(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    consumer: &str,
    id: i64,
) -> Result<Option<Dead>, sqlx::Error> {
    let row = sqlx::query(store.prefix.sql(FIND)).bind(id).bind(consumer).fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Dead {
        handler: HandlerId(row.try_get("handler_id")?),
        fingerprint: Fingerprint::stored(row.try_get("fingerprint")?),
        reason: Reason::parse(row.try_get("reason")?),
    }))
}

/// Keys as a JSON array of what `hex()` makes of them.
fn hexes(keys: &[Key]) -> String {
    let keys = keys.iter().map(|key| format!("\"{}\"", hex::encode_upper(key.as_bytes()))).collect::<Vec<_>>();
    format!("[{}]", keys.join(","))
}

impl Operator for Sqlite {
    async fn stats(&self, handlers: &[HandlerId]) -> Result<Stats, StoreError> {
        let read = async |store: &Self, reader: &mut SqliteConnection| {
            let row = sqlx::query(store.prefix.sql(STATS)).bind(ids(handlers)).fetch_one(reader).await?;
            let count = |column| row.try_get::<i64, _>(column).map(|count| u64::try_from(count).unwrap_or(0));
            let oldest_due = row.try_get::<Option<i64>, _>("oldest")?.map(duration);
            Ok(Stats { scheduled: count("scheduled")?, dead: count("dead")?, oldest_due })
        };
        self.read(read).await
    }

    async fn waiting(&self, consumer: &str) -> Result<Vec<HandlerRows>, StoreError> {
        let read = async |store: &Self, reader: &mut SqliteConnection| {
            sqlx::query_as(store.prefix.sql(WAITING)).bind(consumer).fetch_all(reader).await
        };
        let rows: Vec<(String, i64, String)> = self.read(read).await?;
        let waiting = |(handler, seen, formerly): (_, _, String)| HandlerRows {
            handler,
            seen: duration(seen),
            formerly: serde_json::from_str(&formerly).unwrap_or_default(),
        };
        Ok(rows.into_iter().map(waiting).collect())
    }

    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Remedies {
        let table = |table: &str| format!("\"{}{table}\"", self.prefix.as_str());
        Remedies::new(table, NOW, [consumer, handler, new])
    }

    async fn consumers(&self) -> Result<Vec<String>, StoreError> {
        let read = async |store: &Self, reader: &mut SqliteConnection| {
            sqlx::query_scalar(store.prefix.sql(CONSUMERS)).fetch_all(reader).await
        };
        self.read(read).await
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, StoreError> {
        let read = async |store: &Self, reader: &mut SqliteConnection| {
            let query = sqlx::query(store.prefix.sql(if filter.scheduled { SCHEDULED } else { DEAD }))
                .bind(page.before.unwrap_or(i64::MAX))
                .bind(filter.reason.map(Reason::as_str))
                .bind(consumer)
                .bind(filter.handler.as_deref())
                .bind(page.limit)
                .bind(filter.keys().map(|keys| hexes(&keys)));
            query.fetch_all(reader).await?.iter().map(row).collect()
        };
        self.read(read).await
    }

    async fn replay(&self, consumer: &str, id: i64, force: bool) -> Result<Replayed, StoreError> {
        let replay = async |store: &Self, txn: &mut Txn| {
            Ok(match find(store, txn.connection(), consumer, id).await? {
                None => Replayed::NotFound,
                Some(Dead { reason: Some(Reason::Conflict), .. }) => Replayed::NeedsKey,
                Some(Dead { reason: Some(Reason::Unresolved), .. }) => Replayed::Unresolved,
                Some(dead) if dead.reason.is_some_and(Reason::needs_force) && !force => Replayed::NeedsForce,
                Some(_) => {
                    let query = sqlx::query(store.prefix.sql(REPLAY)).bind(id).bind(None::<&[u8]>);
                    query.execute(txn.connection()).await?;
                    Replayed::Due
                }
            })
        };
        self.in_transaction(replay).await
    }

    /// Claims the new key for the row, then moves the row to it; from then on the row owns its claim.
    async fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> Result<Replayed, StoreError> {
        let replay = async |store: &Self, txn: &mut Txn| {
            let Some(Dead { handler, fingerprint, reason: Some(Reason::Conflict) }) =
                find(store, txn.connection(), consumer, id).await?
            else {
                return Ok(Replayed::NotFound);
            };
            let identity = Identity { handler, key: key.clone(), fingerprint };
            if !claims::insert(store, txn.connection(), &identity, ClaimState::Waiting).await?.is_new() {
                return Ok(Replayed::KeyTaken);
            }
            sqlx::query(store.prefix.sql(REPLAY)).bind(id).bind(key.as_bytes()).execute(txn.connection()).await?;
            Ok(Replayed::Due)
        };
        self.in_transaction(replay).await
    }

    async fn discard(&self, consumer: &str, id: i64) -> Result<bool, StoreError> {
        self.delete_dead(consumer, id, None).await
    }

    async fn resolve(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Uuid,
        resolution: &Resolution,
    ) -> Result<bool, StoreError> {
        let answer = match resolution {
            Resolution::Answer(answer) => Some(answer),
            Resolution::CallAgain => None,
            Resolution::Discard => return self.delete_dead(consumer, id, Some(provider_key)).await,
        };
        let query = sqlx::query(self.prefix.sql(RESOLVE)).bind(id).bind(consumer);
        let query = query.bind(answer.map(CallAnswer::as_bytes)).bind(next_provider_key(provider_key));
        Ok(self.change_of_message(query.bind(provider_key)).await? == 1)
    }

    async fn prune(&self) -> Result<Pruned, StoreError> {
        prune::prune(self).await
    }
}

impl Sqlite {
    /// Runs in one transaction. A conflict row and a row without a key own no claim: the claim of that key belongs to
    /// another message.
    async fn delete_dead(&self, consumer: &str, id: i64, resolved: Option<Uuid>) -> Result<bool, StoreError> {
        let delete = async |store: &Self, txn: &mut Txn| {
            let query = sqlx::query(store.prefix.sql(DISCARD)).bind(id).bind(consumer).bind(resolved);
            let Some(row) = query.fetch_optional(txn.connection()).await? else { return Ok(false) };
            let key: &[u8] = row.try_get("key")?;
            let reason: &str = row.try_get("reason")?;
            if reason != Reason::Conflict.as_str() && !key.is_empty() {
                let handler: i32 = row.try_get("handler_id")?;
                let date = sqlx::query(store.prefix.sql(DATE)).bind(handler).bind(key);
                date.execute(txn.connection()).await?;
            }
            Ok(true)
        };
        self.in_transaction(delete).await
    }
}
