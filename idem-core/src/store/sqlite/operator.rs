//! Operator queries: stats, list, replay, discard.

use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::sql::{duration, ids, row};
use super::{Sqlite, claims, prune, register};
use crate::store::{
    ClaimState, Cures, Filter, HandlerId, HandlerRows, Identity, Operator, Page, Pruned, Replayed, Resolution, Row,
    Stats, StoreError,
};
use crate::{Fingerprint, Key, Reason};

/// Counts in the four partial indexes, so that payloads are not read.
pub(super) const STATS: &str = r#"
SELECT
    (
        SELECT count(*) FROM "idem_inbox_messages"
        WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state IN ('scheduled', 'running')
            AND crash_count = 0 AND lost_connections <= 1
    ) + (
        SELECT count(*) FROM "idem_inbox_messages"
        WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state IN ('scheduled', 'running')
            AND (crash_count >= 1 OR lost_connections >= 2)
    ) + (
        SELECT count(*) FROM "idem_inbox_messages"
        WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling'
    ) AS scheduled,
    (
        SELECT count(*) FROM "idem_inbox_messages"
        WHERE +handler_id IN (SELECT value FROM json_each(?1)) AND state = 'dead'
    ) AS dead,
    {now} - (
        SELECT min(due) FROM (
            SELECT (
                SELECT min(coalesce(locked_until, run_at)) FROM "idem_inbox_messages"
                WHERE handler_id = h.value AND state IN ('scheduled', 'running')
            AND crash_count = 0 AND lost_connections <= 1
            ) AS due FROM json_each(?1) AS h
            UNION ALL SELECT (
                SELECT min(coalesce(locked_until, run_at)) FROM "idem_inbox_messages"
                WHERE handler_id = h.value AND state IN ('scheduled', 'running')
            AND (crash_count >= 1 OR lost_connections >= 2)
            ) FROM json_each(?1) AS h
            UNION ALL SELECT (
                SELECT min(coalesce(locked_until, run_at)) FROM "idem_inbox_messages"
                WHERE handler_id = h.value AND state = 'calling'
            ) FROM json_each(?1) AS h
        )
        WHERE due <= {now}
    ) AS oldest"#;

/// The plus keeps the planner from using an index by handler, after which it would have to sort all rows.
macro_rules! list {
    ($which:literal) => {
        concat!(
            r#"
SELECT {row} FROM "idem_inbox_messages"
WHERE state "#,
            $which,
            r#" AND id < ?1 AND (?2 IS NULL OR reason = ?2)
    AND +handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?3 AND (?4 IS NULL OR h.name = ?4
        OR EXISTS (SELECT 1 FROM "idem_former_names" AS f WHERE f.handler_id = h.id AND f.name = ?4)))
    AND (?6 IS NULL OR hex(key) IN (SELECT value FROM json_each(?6)))
ORDER BY id DESC LIMIT ?5"#
        )
    };
}
const SCHEDULED: &str = list!("<> 'dead'");
pub(super) const DEAD: &str = list!("= 'dead'");

const FIND: &str = r#"
SELECT handler_id, fingerprint, reason FROM "idem_inbox_messages"
WHERE id = ?1 AND state = 'dead' AND handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?2)"#;

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

/// A row that ended processes or connections runs as a suspect again: breaks is set to 2 to mark it, because starts is
/// reset to 0. A row whose external call may have begun, and that has no answer, goes back to its call phase, with the
/// key, the time of its first call, and the end of its lease, because its request may still be on its way.
const REPLAY: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, crash_count = 0, attempts = 0,
    state = CASE WHEN called_at IS NOT NULL AND answer IS NULL THEN 'calling' ELSE 'scheduled' END,
    run_at = CASE WHEN called_at IS NOT NULL AND answer IS NULL THEN max(coalesce(locked_until, 0), run_at, {now}) ELSE {now} END,
    lost_connections = CASE WHEN (called_at IS NULL OR answer IS NOT NULL) AND reason IN ('crashed', 'broke its connection')
        THEN 2 ELSE 0 END,
    reason = NULL, died_at = NULL, asked_at = NULL, key = coalesce(?2, key)
WHERE id = ?1"#;

/// ?3: the key of the call that an operator resolves; without one, a row whose call may have begun stays, whatever made it dead.
const DISCARD: &str = r#"
DELETE FROM "idem_inbox_messages"
WHERE id = ?1 AND state = 'dead' AND handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?2)
    AND CASE WHEN ?3 IS NOT NULL THEN provider_key = ?3 ELSE called_at IS NULL AND answer IS NULL END
RETURNING handler_id, key, reason"#;

const DATE: &str = r#"
UPDATE "idem_processed_messages" SET processed_at = {now}
WHERE handler_id = ?1 AND key = ?2 AND processed_at IS NULL"#;

const CONSUMERS: &str = r#"SELECT DISTINCT consumer FROM "idem_handlers" ORDER BY consumer"#;

/// Keys as a JSON array of what `hex()` makes of them.
fn hexes(keys: &[Key]) -> String {
    let keys = keys.iter().map(|key| format!("\"{}\"", hex::encode_upper(key.as_bytes()))).collect::<Vec<_>>();
    format!("[{}]", keys.join(","))
}

impl Operator for Sqlite {
    async fn stats(&self, handlers: &[HandlerId]) -> Result<Stats, StoreError> {
        let mut reader = self.file.reader().await?;
        let read = async {
            let query = sqlx::query(self.prefix.sql(STATS)).bind(ids(handlers));
            let row = query.fetch_one(&mut reader.connection).await?;
            let count = |column| row.try_get::<i64, _>(column).map(|count| u64::try_from(count).unwrap_or(0));
            let oldest_due = row.try_get::<Option<i64>, _>("oldest")?.map(duration);
            Ok(Stats { scheduled: count("scheduled")?, dead: count("dead")?, oldest_due })
        };
        let level = read.await.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(level)
    }

    async fn waiting(&self, consumer: &str) -> Result<Vec<HandlerRows>, StoreError> {
        register::waiting(self, consumer).await
    }

    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Cures {
        register::cures(self, consumer, handler, new)
    }

    async fn consumers(&self) -> Result<Vec<String>, StoreError> {
        let mut reader = self.file.reader().await?;
        let names = sqlx::query_scalar(self.prefix.sql(CONSUMERS)).fetch_all(&mut reader.connection).await;
        let names = names.map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(names)
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, StoreError> {
        let mut reader = self.file.reader().await?;
        let query = sqlx::query(self.prefix.sql(if filter.scheduled { SCHEDULED } else { DEAD }))
            .bind(page.before.unwrap_or(i64::MAX))
            .bind(filter.reason.map(Reason::as_str))
            .bind(consumer)
            .bind(filter.handler.as_deref())
            .bind(page.limit)
            .bind(filter.keys().map(|keys| hexes(&keys)));
        let rows = query.fetch_all(&mut reader.connection).await;
        let rows = rows.and_then(|rows| rows.iter().map(row).collect()).map_err(|error| self.file.fault(error))?;
        reader.give_back();
        Ok(rows)
    }

    async fn replay(&self, consumer: &str, id: i64, force: bool) -> Result<Replayed, StoreError> {
        let mut txn = self.transaction().await?;
        let work = async {
            let answer = match find(self, txn.connection(), consumer, id).await? {
                None => Replayed::NotFound,
                Some(Dead { reason: Some(Reason::Conflict), .. }) => Replayed::NeedsKey,
                Some(Dead { reason: Some(Reason::Unresolved), .. }) => Replayed::Unresolved,
                Some(dead) if dead.reason.is_some_and(Reason::needs_force) && !force => Replayed::NeedsForce,
                Some(_) => {
                    let query = sqlx::query(self.prefix.sql(REPLAY)).bind(id).bind(None::<&[u8]>);
                    query.execute(txn.connection()).await?;
                    Replayed::Due
                }
            };
            Ok(answer)
        };
        let answer = work.await.map_err(|error| self.file.fault(error))?;
        self.finish(txn, answer == Replayed::Due).await?;
        Ok(answer)
    }

    /// Claims the new key for the row, then moves the row to it; from then on the row owns its claim.
    async fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> Result<Replayed, StoreError> {
        let mut txn = self.transaction().await?;
        let work = async {
            let Some(Dead { handler, fingerprint, reason: Some(Reason::Conflict) }) =
                find(self, txn.connection(), consumer, id).await?
            else {
                return Ok(Replayed::NotFound);
            };
            let identity = Identity { handler, key: key.clone(), fingerprint };
            if !claims::insert(self, txn.connection(), &identity, ClaimState::Waiting).await?.is_new() {
                return Ok(Replayed::KeyTaken);
            }
            sqlx::query(self.prefix.sql(REPLAY)).bind(id).bind(key.as_bytes()).execute(txn.connection()).await?;
            Ok(Replayed::Due)
        };
        let answer = work.await.map_err(|error| self.file.fault(error))?;
        self.finish(txn, answer == Replayed::Due).await?;
        Ok(answer)
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
        match resolution {
            Resolution::Answer(answer) => self.resolve_call(consumer, id, provider_key, Some(answer)).await,
            Resolution::CallAgain => self.resolve_call(consumer, id, provider_key, None).await,
            Resolution::Discard => self.delete_dead(consumer, id, Some(provider_key)).await,
        }
    }

    async fn prune(&self) -> Result<Pruned, StoreError> {
        prune::prune(self).await
    }
}

impl Sqlite {
    /// Runs in one transaction. A conflict row and a row without a key own no claim: the claim of that key belongs to
    /// another message.
    async fn delete_dead(&self, consumer: &str, id: i64, resolved: Option<Uuid>) -> Result<bool, StoreError> {
        let mut txn = self.transaction().await?;
        let work = async {
            let query = sqlx::query(self.prefix.sql(DISCARD)).bind(id).bind(consumer).bind(resolved);
            let Some(row) = query.fetch_optional(txn.connection()).await? else { return Ok(false) };
            let key: &[u8] = row.try_get("key")?;
            let reason: &str = row.try_get("reason")?;
            if reason != Reason::Conflict.as_str() && !key.is_empty() {
                let handler: i32 = row.try_get("handler_id")?;
                let date = sqlx::query(self.prefix.sql(DATE)).bind(handler).bind(key);
                date.execute(txn.connection()).await?;
            }
            Ok(true)
        };
        let discarded = work.await.map_err(|error| self.file.fault(error))?;
        self.finish(txn, discarded).await?;
        Ok(discarded)
    }
}
