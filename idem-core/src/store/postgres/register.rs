//! Handlers: (consumer, name) as a small integer.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::store::{HandlerId, StoreError, Waiting};

use super::Postgres;
use super::rows::ids;
use super::rows::secs;

/// With ON CONFLICT alone, each start of each worker would advance the sequence; `NOT EXISTS` prevents that.
pub(super) const INTERN: &str = "
    INSERT INTO {schema}.handlers (consumer, name, retention)
    SELECT DISTINCT $1, name, $3::float8 * interval '1 second' FROM unnest($2::text[]) AS name
    WHERE NOT EXISTS (SELECT FROM {schema}.handlers AS h WHERE h.consumer = $1 AND h.name = name.name)
    ON CONFLICT (consumer, name) DO NOTHING";

/// The greater value wins. Null means forever, so it is never replaced. Rows are locked in the order of their ids, as
/// prune locks them.
pub(super) const KEEP: &str = "
    WITH shorter AS MATERIALIZED (
        SELECT id FROM {schema}.handlers
        WHERE consumer = $1 AND name = ANY($2) AND retention < $3::float8 * interval '1 second' ORDER BY id FOR UPDATE
    )
    UPDATE {schema}.handlers AS h SET retention = greatest(h.retention, $3::float8 * interval '1 second')
    FROM shorter WHERE h.id = shorter.id";

pub(super) const RETENTION: &str = "
    SELECT (extract(epoch FROM h.retention) * 1000000)::bigint
    FROM unnest($1::int[]) WITH ORDINALITY AS asked (id, place) LEFT JOIN {schema}.handlers AS h ON h.id = asked.id
    ORDER BY asked.place";

pub(super) const HANDLERS: &str = "
    SELECT name, id FROM {schema}.handlers WHERE consumer = $1 AND name = ANY($2)";

/// Waits for no lock, so that workers and prune never block each other, and writes a row at most twice a minute,
/// regardless of how many workers have the handler: each claim reads the row.
pub(super) const SEEN: &str = "
    WITH stale AS MATERIALIZED (
        SELECT id FROM {schema}.handlers
        WHERE id = ANY($1) AND seen_at < now() - interval '30 seconds' FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE {schema}.handlers AS h SET seen_at = now() FROM stale WHERE h.id = stale.id";

pub(super) const WAITING: &str = "
    SELECT name, (extract(epoch FROM now() - seen_at) * 1000000)::bigint FROM {schema}.handlers AS h
    WHERE consumer = $1 AND EXISTS (SELECT FROM {schema}.inbox_messages AS i WHERE i.handler_id = h.id)
    ORDER BY name";

/// `pruned_through` shows that a claim existed even if all claims were pruned. Uses the index, for each handler.
pub(super) const HAS_HISTORY: &str = "
    SELECT EXISTS (
        SELECT FROM {schema}.handlers AS h
        WHERE consumer = $1 AND (pruned_through IS NOT NULL
            OR EXISTS (SELECT FROM {schema}.processed_messages AS p WHERE p.handler_id = h.id)))";

impl Postgres {
    pub(super) async fn any_claim(&self, consumer: &str) -> Result<bool, StoreError> {
        let rows = self.ask(self.sql().has_history.query().bind(consumer)).await?;
        let row = rows.first().ok_or_else(|| StoreError::Unavailable("the store answered nothing".into()))?;
        Ok(row.try_get(0)?)
    }

    pub(super) async fn intern(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let retention = secs(self.0.retention);
        self.ask(self.sql().intern.query().bind(consumer).bind(&names).bind(retention)).await?;
        self.ask(self.sql().keep.query().bind(consumer).bind(&names).bind(retention)).await?;
        // In a separate statement, which sees the rows that another worker has inserted meanwhile.
        let rows = self.ask(self.sql().handlers.query().bind(consumer).bind(&names)).await?;
        let mut ids = HashMap::new();
        for row in rows {
            ids.insert(row.try_get::<String, _>(0)?, HandlerId(row.try_get(1)?));
        }
        let found = names.iter().map(|name| ids.get(name).copied());
        found
            .collect::<Option<_>>()
            .ok_or_else(|| StoreError::Unavailable("a handler was deleted while it was registered".into()))
    }

    pub(super) async fn retentions(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, StoreError> {
        let rows = self.ask(self.sql().retention.query().bind(ids(handlers))).await?;
        let micros = rows.iter().map(|row| row.try_get::<Option<i64>, _>(0)).collect::<Result<Vec<_>, _>>()?;
        let duration = |micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        Ok(micros.into_iter().map(|micros| micros.map(duration)).collect())
    }

    pub(super) async fn note_seen(&self, handlers: &[HandlerId]) -> Result<(), StoreError> {
        self.ask(self.sql().seen.query().bind(ids(handlers))).await.map(drop)
    }

    pub(super) async fn handlers_waiting(&self, consumer: &str) -> Result<Vec<Waiting>, StoreError> {
        let rows = self.ask(self.sql().waiting.query().bind(consumer)).await?;
        let waiting = |row: &PgRow| {
            let seen = Duration::from_micros(u64::try_from(row.try_get::<i64, _>(1)?).unwrap_or(0));
            Ok(Waiting { handler: row.try_get(0)?, seen })
        };
        Ok(rows.iter().map(waiting).collect::<Result<_, sqlx::Error>>()?)
    }
}
