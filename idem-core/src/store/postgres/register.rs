//! Handlers: (consumer, name) as a small integer.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::store::{HandlerId, HandlerRows, History, StoreError, tell_of_retention};

use super::Postgres;
use super::rows::{duration, ids, secs};
use super::session::literal;
use super::statement::quoted;

pub(super) async fn histories(store: &Postgres, consumer: &str) -> Result<Vec<History>, StoreError> {
    let statement = match store.0.checked.latest.initialized() {
        true => &store.sql().histories_with_versions,
        false => &store.sql().histories,
    };
    let rows = store.ask(statement.query().bind(consumer)).await?;
    let history = |row: &PgRow| {
        Ok(History {
            handler: row.try_get(0)?,
            seen: duration(row.try_get(1)?),
            has_claims: row.try_get(2)?,
            has_versions: row.try_get(3)?,
            has_processed: row.try_get(4)?,
        })
    };
    Ok(rows.iter().map(history).collect::<Result<_, sqlx::Error>>()?)
}

pub(super) async fn register(store: &Postgres, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
    let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let retention = secs(store.0.retention);
    store.ask(store.sql().intern.query().bind(consumer).bind(&names).bind(retention)).await?;
    store.ask(store.sql().keep.query().bind(consumer).bind(&names).bind(retention)).await?;
    // In a separate statement, which sees the rows that another worker has inserted meanwhile.
    let rows = store.ask(store.sql().handlers.query().bind(consumer).bind(&names)).await?;
    let (mut ids, mut stored) = (HashMap::new(), None);
    for row in rows {
        ids.insert(row.try_get::<String, _>(0)?, HandlerId(row.try_get(1)?));
        stored = stored.max(row.try_get::<Option<i64>, _>(2)?.map(duration));
    }
    tell_of_retention(consumer, store.0.retention, stored, |millis| {
        let (schema, consumer) = (quoted(store.schema()), literal(consumer));
        format!("UPDATE {schema}.handlers SET retention = '{millis} milliseconds' WHERE consumer = {consumer}")
    });
    let found = names.iter().map(|name| ids.get(name).copied());
    found
        .collect::<Option<_>>()
        .ok_or_else(|| StoreError::Unavailable("a handler was deleted while it was registered".into()))
}

pub(super) async fn retention(store: &Postgres, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, StoreError> {
    let rows = store.ask(store.sql().retention.query().bind(ids(handlers))).await?;
    let micros = rows.iter().map(|row| row.try_get::<Option<i64>, _>(0)).collect::<Result<Vec<_>, _>>()?;
    Ok(micros.into_iter().map(|micros| micros.map(duration)).collect())
}

pub(super) async fn record_seen(store: &Postgres, handlers: &[HandlerId]) -> Result<(), StoreError> {
    store.ask(store.sql().seen.query().bind(ids(handlers))).await.map(drop)
}

pub(super) async fn record_history(store: &Postgres, handler: HandlerId) -> Result<(), StoreError> {
    store.ask(store.sql().record_history.query().bind(handler.0)).await.map(drop)
}

pub(super) async fn waiting(store: &Postgres, consumer: &str) -> Result<Vec<HandlerRows>, StoreError> {
    let rows = store.ask(store.sql().waiting.query().bind(consumer)).await?;
    let waiting = |row: &PgRow| Ok(HandlerRows { handler: row.try_get(0)?, seen: duration(row.try_get(1)?) });
    Ok(rows.iter().map(waiting).collect::<Result<_, sqlx::Error>>()?)
}
