//! Operator queries: stats, list, replay, discard.

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::store::{
    Filter, HandlerId, HandlerRows, Operator, Page, Pruned, Remedies, Replayed, Resolution, Row, Stats, StoreError,
    next_provider_key,
};
use crate::{Key, Reason};

use super::answer::About;
use super::rows::{self, duration, ids};
use super::{Postgres, calls_sql, operator_sql, register_sql};

impl Operator for Postgres {
    async fn stats(&self, handlers: &[HandlerId]) -> Result<Stats, StoreError> {
        let rows = self.ask_long(self.query(operator_sql::STATS).bind(ids(handlers))).await?;
        let Some(row) = rows.first() else { return Ok(Stats::default()) };
        let oldest: Option<i64> = row.try_get(2)?;
        Ok(Stats {
            scheduled: row.try_get::<i64, _>(0)?.unsigned_abs(),
            dead: row.try_get::<i64, _>(1)?.unsigned_abs(),
            oldest_due: oldest.map(duration),
        })
    }

    async fn waiting(&self, consumer: &str) -> Result<Vec<HandlerRows>, StoreError> {
        let rows = self.ask(self.query(&register_sql::waiting()).bind(consumer)).await?;
        let waiting = |row: &PgRow| {
            Ok(HandlerRows { handler: row.try_get(0)?, seen: duration(row.try_get(1)?), formerly: row.try_get(2)? })
        };
        Ok(rows.iter().map(waiting).collect::<Result<_, sqlx::Error>>()?)
    }

    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Remedies {
        let schema = &self.0.quoted;
        Remedies::new(|table| format!("{schema}.{table}"), "now()", [consumer, handler, new])
    }

    async fn consumers(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.ask(self.query(operator_sql::CONSUMERS)).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, StoreError> {
        let which = if filter.scheduled { "state <> 'dead'" } else { "state = 'dead'" };
        let query =
            self.query(&operator_sql::list(which)).bind(consumer).bind(page.before).bind(filter.handler.as_deref());
        let keys = filter.keys().map(|keys| keys.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>());
        let query = query.bind(filter.reason.map(Reason::as_str)).bind(i64::from(page.limit)).bind(keys);
        rows::all(&self.ask(query).await?)
    }

    async fn replay(&self, consumer: &str, id: i64, force: bool) -> Result<Replayed, StoreError> {
        let rows = self.ask(self.query(&operator_sql::replay()).bind(consumer).bind(id).bind(force)).await?;
        let Some(row) = rows.first() else { return Ok(Replayed::NotFound) };
        let reason: String = row.try_get(0)?;
        Ok(match Reason::parse(&reason) {
            Some(Reason::Conflict) => Replayed::NeedsKey,
            Some(Reason::Unresolved) => Replayed::Unresolved,
            Some(reason) if reason.needs_force() && !force => Replayed::NeedsForce,
            _ => Replayed::Due,
        })
    }

    async fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> Result<Replayed, StoreError> {
        let rows =
            self.ask(self.query(&operator_sql::replay_as()).bind(consumer).bind(id).bind(key.as_bytes())).await?;
        let Some(row) = rows.first() else { return Ok(Replayed::NotFound) };
        Ok(if row.try_get(0)? { Replayed::Due } else { Replayed::KeyTaken })
    }

    async fn discard(&self, consumer: &str, id: i64) -> Result<bool, StoreError> {
        Ok(!self.ask(self.query(&operator_sql::discard()).bind(consumer).bind(id).bind(None::<Uuid>)).await?.is_empty())
    }

    async fn resolve(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Uuid,
        resolution: &Resolution,
    ) -> Result<bool, StoreError> {
        let resolve = || self.query(calls_sql::RESOLVE).bind(consumer).bind(id);
        let next = next_provider_key(provider_key);
        let query = match resolution {
            Resolution::Answer(answer) => resolve().bind(Some(answer.as_bytes())).bind(provider_key).bind(next),
            Resolution::CallAgain => resolve().bind(None::<&[u8]>).bind(provider_key).bind(next),
            Resolution::Discard => {
                self.query(&operator_sql::discard()).bind(consumer).bind(id).bind(Some(provider_key))
            }
        };
        Ok(!self.ask_about(About::Messages, query).await?.is_empty())
    }

    async fn prune(&self) -> Result<Pruned, StoreError> {
        self.prune_claims().await
    }
}
