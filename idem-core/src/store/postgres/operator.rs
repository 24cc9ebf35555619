//! Operator queries: stats, list, replay, discard.

use std::time::Duration;

use sqlx::Row as _;

use crate::store::{Cures, Filter, HandlerId, Operator, Page, Pruned, Replayed, Row, Stats, StoreError, Waiting};
use crate::{Key, Reason};

use super::rows::{self, COLUMNS, ids};
use super::{Postgres, statement};

pub(super) const LEVEL: &str = "
    SELECT count(*) FILTER (WHERE state = 'scheduled'), count(*) FILTER (WHERE state = 'dead'),
           (extract(epoch FROM now() - min(due_at) FILTER (WHERE state = 'scheduled' AND due_at <= now())) * 1000000)::bigint
    FROM {schema}.inbox_messages WHERE handler_id = ANY($1)";

/// The state is a literal in the text, so that the planner can use the index of dead rows.
pub(super) fn list(state: &str) -> String {
    format!(
        "SELECT {COLUMNS} FROM {{schema}}.inbox_messages AS i JOIN {{schema}}.handlers AS h ON h.id = i.handler_id
        WHERE h.consumer = $1 AND i.state = '{state}' AND i.id < coalesce($2, 9223372036854775807)
          AND ($3::text IS NULL OR h.name = $3) AND ($4::text IS NULL OR i.reason = $4)
          AND ($6::bytea[] IS NULL OR i.key = ANY($6))
        ORDER BY i.id DESC LIMIT $5"
    )
}

pub(super) const CONSUMERS: &str = "SELECT DISTINCT consumer FROM {schema}.handlers ORDER BY consumer";

/// A row that ended a process or a connection runs as a suspect again: breaks is set to 2 to mark it, because starts is
/// reset to 0. Earlier breaks are cleared.
pub(super) fn replay() -> String {
    format!(
        "WITH found AS MATERIALIZED (
            SELECT i.id, i.reason FROM {{schema}}.inbox_messages AS i
            JOIN {{schema}}.handlers AS h ON h.id = i.handler_id
            WHERE i.id = $2 AND h.consumer = $1 AND i.state = 'dead' FOR UPDATE OF i
        ), done AS (
            UPDATE {{schema}}.inbox_messages AS i
            SET state = 'scheduled', due_at = now(), died_at = NULL, reason = NULL, token = NULL, starts = 0, attempts = 0,
                breaks = CASE WHEN found.reason IN ('{}', '{}') THEN 2 ELSE 0 END
            FROM found WHERE i.id = found.id AND found.reason <> '{}' AND ($3 OR found.reason NOT IN ('{}', '{}'))
        )
        SELECT reason FROM found",
        Reason::Crashed,
        Reason::BrokeConnection,
        Reason::Conflict,
        Reason::Committed,
        Reason::TooOld,
    )
}

pub(super) fn replay_as() -> String {
    format!(
        "WITH found AS MATERIALIZED (
            SELECT i.id, i.handler_id, i.fingerprint FROM {{schema}}.inbox_messages AS i
            JOIN {{schema}}.handlers AS h ON h.id = i.handler_id
            WHERE i.id = $2 AND h.consumer = $1 AND i.state = 'dead' AND i.reason = '{}' FOR UPDATE OF i
        ), claimed AS (
            INSERT INTO {{schema}}.processed_messages (handler_id, key, fingerprint)
            SELECT handler_id, $3, fingerprint FROM found
            WHERE NOT EXISTS (SELECT FROM {{schema}}.processed_messages AS claim
                              WHERE claim.handler_id = found.handler_id AND claim.key = $3)
            ON CONFLICT (handler_id, key) DO NOTHING RETURNING 1
        ), moved AS (
            UPDATE {{schema}}.inbox_messages AS i
            SET key = $3, state = 'scheduled', due_at = now(), died_at = NULL, reason = NULL, token = NULL, starts = 0,
                breaks = 0
            FROM found, claimed WHERE i.id = found.id RETURNING 1
        )
        SELECT EXISTS (SELECT FROM moved) FROM found",
        Reason::Conflict
    )
}

/// The claim is dated only if the deleted row owned it. A conflict does not: the claim of its key belongs to another
/// message. A row without a key finds no claim, since no claim has an empty key.
pub(super) fn discard() -> String {
    format!(
        "WITH gone AS (
            DELETE FROM {{schema}}.inbox_messages AS i USING {{schema}}.handlers AS h
            WHERE i.id = $2 AND h.id = i.handler_id AND h.consumer = $1 AND i.state = 'dead'
            RETURNING i.handler_id, i.key, i.reason
        ), dated AS (
            UPDATE {{schema}}.processed_messages AS claim SET processed_at = now() FROM gone
            WHERE claim.handler_id = gone.handler_id AND claim.key = gone.key AND claim.processed_at IS NULL
              AND gone.reason <> '{}'
        )
        SELECT FROM gone",
        Reason::Conflict
    )
}

impl Operator for Postgres {
    async fn stats(&self, handlers: &[HandlerId]) -> Result<Stats, StoreError> {
        let rows = self.ask(self.sql().stats.query().bind(ids(handlers))).await?;
        let Some(row) = rows.first() else { return Ok(Stats::default()) };
        let oldest: Option<i64> = row.try_get(2)?;
        Ok(Stats {
            scheduled: row.try_get::<i64, _>(0)?.unsigned_abs(),
            dead: row.try_get::<i64, _>(1)?.unsigned_abs(),
            oldest_due: oldest.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))),
        })
    }

    async fn waiting(&self, consumer: &str) -> Result<Vec<Waiting>, StoreError> {
        self.handlers_waiting(consumer).await
    }

    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Cures {
        let schema = statement::quoted(self.schema());
        Cures::new(|table| format!("{schema}.{table}"), "now()", consumer, handler, new)
    }

    async fn consumers(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.ask(self.sql().consumers.query()).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, StoreError> {
        let statement = if filter.scheduled { &self.sql().list_scheduled } else { &self.sql().list_dead };
        let query = statement.query().bind(consumer).bind(page.before).bind(filter.handler.as_deref());
        let keys = filter.keys().map(|keys| keys.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>());
        let query = query.bind(filter.reason.map(Reason::as_str)).bind(i64::from(page.limit)).bind(keys);
        rows::all(&self.ask(query).await?)
    }

    async fn replay(&self, consumer: &str, id: i64, force: bool) -> Result<Replayed, StoreError> {
        let rows = self.ask(self.sql().replay.query().bind(consumer).bind(id).bind(force)).await?;
        let Some(row) = rows.first() else { return Ok(Replayed::NotFound) };
        let reason: String = row.try_get(0)?;
        Ok(match Reason::parse(&reason) {
            Some(Reason::Conflict) => Replayed::NeedsKey,
            Some(reason) if reason.needs_force() && !force => Replayed::NeedsForce,
            _ => Replayed::Due,
        })
    }

    async fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> Result<Replayed, StoreError> {
        let rows = self.ask(self.sql().replay_as.query().bind(consumer).bind(id).bind(key.as_bytes())).await?;
        let Some(row) = rows.first() else { return Ok(Replayed::NotFound) };
        Ok(if row.try_get(0)? { Replayed::Due } else { Replayed::KeyTaken })
    }

    async fn discard(&self, consumer: &str, id: i64) -> Result<bool, StoreError> {
        Ok(!self.ask(self.sql().discard.query().bind(consumer).bind(id)).await?.is_empty())
    }

    async fn prune(&self) -> Result<Pruned, StoreError> {
        self.prune_claims().await
    }
}
