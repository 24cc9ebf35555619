//! Handlers: (consumer, name) as a small integer.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::store::{HandlerId, StoreError, Waiting};

use super::Postgres;
use super::rows::ids;
use super::rows::secs;

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
