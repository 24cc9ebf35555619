//! Handlers: (consumer, name) as a small integer.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::store::{HandlerId, HandlerRows, History, NUMBERS, StoreError, number, tell_of_retention};

use super::Postgres;
use super::rows::{duration, ids, secs};
use super::state::literal;
use super::statement::quoted;

pub(super) async fn histories(store: &Postgres, consumer: &str) -> Result<Vec<History>, StoreError> {
    let rows = store.ask(store.sql().histories.query().bind(consumer)).await?;
    let history = |row: &PgRow| {
        Ok(History {
            handler: row.try_get(0)?,
            seen: duration(row.try_get(1)?),
            has_claims: row.try_get(2)?,
            formerly: row.try_get(3)?,
        })
    };
    Ok(rows.iter().map(history).collect::<Result<_, sqlx::Error>>()?)
}

pub(super) async fn register(store: &Postgres, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
    let retention = secs(store.0.retention);
    for attempt in 0..NUMBERS {
        let numbers: Vec<i32> = names.iter().map(|name| number(&[consumer, name], attempt)).collect();
        store.ask(store.sql().intern.query().bind(consumer).bind(names).bind(retention).bind(numbers)).await?;
        // In a separate statement, which sees the rows that another worker has inserted meanwhile.
        let known = known(store, consumer, names).await?;
        let found = names.iter().map(|name| known.get(*name).copied());
        if let Some(found) = found.collect::<Option<Vec<_>>>() {
            store.ask(store.sql().keep.query().bind(ids(&found)).bind(retention)).await?;
            let stored = self::retention(store, &found).await?.into_iter().max().flatten();
            tell_of_retention(consumer, store.0.retention, stored, |millis| {
                let (schema, consumer) = (quoted(store.schema()), literal(consumer));
                format!("UPDATE {schema}.handlers SET retention = '{millis} milliseconds' WHERE consumer = {consumer}")
            });
            return Ok(found);
        }
    }
    Err(StoreError::Unavailable("a handler was deleted while it was registered".into()))
}

/// Returns the numbers of those names that have one.
async fn known(store: &Postgres, consumer: &str, names: &[&str]) -> Result<HashMap<String, HandlerId>, StoreError> {
    let mut known = HashMap::new();
    for row in store.ask(store.sql().handlers.query().bind(consumer).bind(names)).await? {
        known.entry(row.try_get(0)?).or_insert(HandlerId(row.try_get(1)?));
    }
    Ok(known)
}

/// Each statement leaves the names as they were or as they should be, so it may be repeated after any of them.
pub(super) async fn rename(store: &Postgres, consumer: &str, old: &str, new: &str) -> Result<bool, StoreError> {
    let known = known(store, consumer, &[old, new]).await?;
    let (id, is_old) = match (known.get(old), known.get(new)) {
        (Some(before), Some(after)) if before == after => return Ok(true),
        (Some(before), Some(after)) if forget(store, *after).await? => (*before, true),
        (Some(before), Some(after)) if forget(store, *before).await? => (*after, false),
        (Some(_), Some(_)) => return Ok(false),
        (Some(before), None) => (*before, true),
        (None, Some(after)) => (*after, false),
        (None, None) => match register(store, consumer, &[new]).await?.first() {
            Some(id) => (*id, false),
            None => return Ok(true),
        },
    };
    let (statement, name) = if is_old { (&store.sql().rename, new) } else { (&store.sql().add_former_name, old) };
    store.ask(statement.query().bind(id.0).bind(name)).await.map(|_| true)
}

/// Deletes a handler to which nothing belongs. Returns whether it has done so.
async fn forget(store: &Postgres, id: HandlerId) -> Result<bool, StoreError> {
    Ok(!store.ask(store.sql().forget.query().bind(id.0)).await?.is_empty())
}

pub(super) async fn retention(store: &Postgres, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, StoreError> {
    let rows = store.ask(store.sql().retention.query().bind(ids(handlers))).await?;
    let micros = rows.iter().map(|row| row.try_get::<Option<i64>, _>(0)).collect::<Result<Vec<_>, _>>()?;
    Ok(micros.into_iter().map(|micros| micros.map(duration)).collect())
}

pub(super) async fn record_seen(store: &Postgres, handlers: &[HandlerId]) -> Result<bool, StoreError> {
    let rows = store.ask(store.sql().seen.query().bind(ids(handlers))).await?;
    let there = rows.first().map_or(Ok(0_i64), |row| row.try_get(0))?;
    Ok(there == handlers.iter().collect::<HashSet<_>>().len() as i64)
}

pub(super) async fn record_history(store: &Postgres, handler: HandlerId) -> Result<(), StoreError> {
    store.ask(store.sql().record_history.query().bind(handler.0)).await.map(drop)
}

pub(super) async fn waiting(store: &Postgres, consumer: &str) -> Result<Vec<HandlerRows>, StoreError> {
    let rows = store.ask(store.sql().waiting.query().bind(consumer)).await?;
    let waiting = |row: &PgRow| {
        Ok(HandlerRows { handler: row.try_get(0)?, seen: duration(row.try_get(1)?), formerly: row.try_get(2)? })
    };
    Ok(rows.iter().map(waiting).collect::<Result<_, sqlx::Error>>()?)
}
