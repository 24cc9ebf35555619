//! Handlers, and the ping.

use std::time::Duration;

use sqlx::sqlite::SqliteConnection;

use super::Sqlite;
use super::file::Connection;
use super::sql::{NOW, duration, ids, millis};
use crate::store::{Cures, HandlerId, HandlerRows, History, NUMBERS, StoreError, number, tell_of_retention};

const INTERN: &str = r#"
INSERT INTO "idem_handlers" (id, consumer, name, retention) VALUES (?4, ?1, ?2, ?3) ON CONFLICT DO NOTHING"#;

/// The greater value wins. Null means forever, so it is never replaced.
const KEEP: &str = r#"
UPDATE "idem_handlers" SET retention = ?2 WHERE id = ?1 AND retention < ?2"#;

const RETENTION: &str = r#"SELECT retention FROM "idem_handlers" WHERE id = ?1"#;

/// A former name comes behind the same name of another handler.
const NUMBER: &str = r#"
SELECT id FROM "idem_handlers" WHERE consumer = ?1 AND name = ?2
UNION ALL
SELECT h.id FROM "idem_handlers" AS h JOIN "idem_former_names" AS f ON f.handler_id = h.id
WHERE h.consumer = ?1 AND f.name = ?2
LIMIT 1"#;

const RENAME: &str = r#"UPDATE "idem_handlers" SET name = ?2 WHERE id = ?1"#;

const KEEP_NAME: &str = r#"
INSERT INTO "idem_former_names" (handler_id, name) SELECT id, name FROM "idem_handlers" WHERE id = ?1
ON CONFLICT DO NOTHING"#;

const ADD_FORMER_NAME: &str = r#"
INSERT INTO "idem_former_names" (handler_id, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING"#;

/// Deletes a handler to which nothing belongs.
const FORGET: &str = r#"
DELETE FROM "idem_handlers" AS h WHERE id = ?1 AND pruned_through IS NULL
    AND NOT EXISTS (SELECT 1 FROM "idem_processed_messages" AS p WHERE p.handler_id = h.id)
    AND NOT EXISTS (SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = h.id)"#;

/// The other names of a handler, as JSON.
const FORMER_NAMES: &str =
    r#"(SELECT json_group_array(f.name) FROM "idem_former_names" AS f WHERE f.handler_id = h.id)"#;

pub(super) async fn rename(store: &Sqlite, consumer: &str, old: &str, new: &str) -> Result<bool, StoreError> {
    let mut txn = store.transaction().await?;
    let renamed = rename_in(store, txn.connection(), consumer, old, new).await;
    let renamed = renamed.map_err(|error| store.file.fault(error))?;
    store.finish(txn, true).await?;
    Ok(renamed)
}

async fn rename_in(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    consumer: &str,
    old: &str,
    new: &str,
) -> Result<bool, sqlx::Error> {
    let find = |name| sqlx::query_scalar::<_, i32>(store.prefix.sql(NUMBER)).bind(consumer).bind(name);
    let before = find(old).fetch_optional(&mut *connection).await?;
    let after = find(new).fetch_optional(&mut *connection).await?;
    let forget = |id: i32| sqlx::query(store.prefix.sql(FORGET)).bind(id);
    let (id, is_old) = match (before, after) {
        (Some(before), Some(after)) if before == after => return Ok(true),
        (Some(before), Some(after)) => {
            if forget(after).execute(&mut *connection).await?.rows_affected() == 1 {
                (before, true)
            } else if forget(before).execute(&mut *connection).await?.rows_affected() == 1 {
                (after, false)
            } else {
                return Ok(false);
            }
        }
        (Some(before), None) => (before, true),
        (None, Some(after)) => (after, false),
        (None, None) => (intern(store, &mut *connection, consumer, new).await?.0, false),
    };
    if !is_old {
        sqlx::query(store.prefix.sql(ADD_FORMER_NAME)).bind(id).bind(old).execute(connection).await?;
        return Ok(true);
    }
    sqlx::query(store.prefix.sql(KEEP_NAME)).bind(id).execute(&mut *connection).await?;
    sqlx::query(store.prefix.sql(RENAME)).bind(id).bind(new).execute(connection).await?;
    Ok(true)
}

pub(super) async fn register(store: &Sqlite, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
    let mut txn = store.transaction().await?;
    let work = async {
        let mut handlers = Vec::with_capacity(names.len());
        for name in names {
            handlers.push(intern(store, txn.connection(), consumer, name).await?);
        }
        Ok(handlers)
    };
    let handlers = work.await.map_err(|error| store.file.fault(error))?;
    store.finish(txn, true).await?;
    let stored = retention(store, &handlers).await?.into_iter().max().flatten();
    tell_of_retention(consumer, store.retention, stored, |millis| {
        let (prefix, consumer) = (store.prefix.as_str(), consumer.replace('\'', "''"));
        format!("UPDATE {prefix}handlers SET retention = {millis} WHERE consumer = '{consumer}'")
    });
    Ok(handlers)
}

/// Interns one name, and raises its retention, on this connection.
pub(super) async fn intern(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    consumer: &str,
    name: &str,
) -> Result<HandlerId, sqlx::Error> {
    let find = || sqlx::query_scalar(store.prefix.sql(NUMBER)).bind(consumer).bind(name);
    for attempt in 0..NUMBERS {
        if let Some(id) = find().fetch_optional(&mut *connection).await? {
            let keep = sqlx::query(store.prefix.sql(KEEP)).bind(id).bind(millis(store.retention));
            keep.execute(connection).await?;
            return Ok(HandlerId(id));
        }
        let query = sqlx::query(store.prefix.sql(INTERN)).bind(consumer).bind(name).bind(millis(store.retention));
        query.bind(number(&[consumer, name], attempt)).execute(&mut *connection).await?;
    }
    find().fetch_one(connection).await.map(HandlerId)
}

pub(super) async fn retention(store: &Sqlite, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, StoreError> {
    let mut reader = store.file.reader().await?;
    let mut retentions = Vec::with_capacity(handlers.len());
    for handler in handlers {
        let query = sqlx::query_scalar::<_, Option<i64>>(store.prefix.sql(RETENTION)).bind(handler.0);
        let found = query.fetch_optional(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
        retentions.push(found.flatten().map(duration));
    }
    reader.give_back();
    Ok(retentions)
}

const STALE: &str = r#"
SELECT coalesce(sum(seen_at < {now} - 30000), 0), count(*) = (SELECT count(DISTINCT value) FROM json_each(?1))
FROM "idem_handlers" WHERE id IN (SELECT value FROM json_each(?1))"#;

const SEEN: &str = r#"
UPDATE "idem_handlers" SET seen_at = {now}
WHERE id IN (SELECT value FROM json_each(?1)) AND seen_at < {now} - 30000"#;

/// Reads first, because reading never waits: then only one of the file's workers has to write.
pub(super) async fn record_seen(store: &Sqlite, handlers: &[HandlerId]) -> Result<bool, StoreError> {
    let handlers = ids(handlers);
    let mut reader = store.file.reader().await?;
    let query = sqlx::query_as(store.prefix.sql(STALE)).bind(&handlers);
    let (stale, are_there): (i64, bool) =
        query.fetch_one(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
    reader.give_back();
    if stale > 0 {
        store.change(sqlx::query(store.prefix.sql(SEEN)).bind(&handlers)).await?;
    }
    Ok(are_there)
}

const WAITING: &str = r#"
SELECT name, {now} - seen_at, {former_names} FROM "idem_handlers" AS h
WHERE consumer = ?1 AND EXISTS (SELECT 1 FROM "idem_inbox_messages" WHERE handler_id = h.id)
ORDER BY name"#;

pub(super) async fn waiting(store: &Sqlite, consumer: &str) -> Result<Vec<HandlerRows>, StoreError> {
    let mut reader = store.file.reader().await?;
    let text = WAITING.replace("{former_names}", FORMER_NAMES);
    let query = sqlx::query_as(store.prefix.sql(&text)).bind(consumer);
    let rows: Vec<(String, i64, String)> =
        query.fetch_all(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
    reader.give_back();
    let waiting = |(handler, seen, formerly): (_, _, String)| HandlerRows {
        handler,
        seen: duration(seen),
        formerly: serde_json::from_str(&formerly).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(waiting).collect())
}

pub(super) fn cures(store: &Sqlite, consumer: &str, handler: &str, new: &str) -> Cures {
    let table = |table: &str| format!("\"{}{table}\"", store.prefix.as_str());
    Cures::new(table, NOW, [consumer, handler, new])
}

/// A date that is before every message shows that the handler has processed messages, and makes none of them too old.
const RECORD_HISTORY: &str = r#"
UPDATE "idem_handlers" SET pruned_through = 0 WHERE id = ?1 AND pruned_through IS NULL"#;

pub(super) async fn record_history(store: &Sqlite, handler: HandlerId) -> Result<(), StoreError> {
    store.change(sqlx::query(store.prefix.sql(RECORD_HISTORY)).bind(handler.0)).await.map(|_| ())
}

/// `pruned_through` shows that a claim existed even if all claims were pruned, or that messages were processed without
/// claims.
const HISTORIES: &str = r#"
SELECT name, seen, has_claims, former_names FROM (
    SELECT name, pruned_through, {now} - seen_at AS seen, {former_names} AS former_names,
        EXISTS (SELECT 1 FROM "idem_processed_messages" WHERE handler_id = h.id) AS has_claims
    FROM "idem_handlers" AS h WHERE consumer = ?1
) WHERE has_claims OR pruned_through IS NOT NULL
ORDER BY name"#;

pub(super) async fn histories(store: &Sqlite, consumer: &str) -> Result<Vec<History>, StoreError> {
    let mut reader = store.file.reader().await?;
    let text = HISTORIES.replace("{former_names}", FORMER_NAMES);
    let query = sqlx::query_as(store.prefix.sql(&text)).bind(consumer);
    let rows: Vec<(String, i64, bool, String)> =
        query.fetch_all(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
    reader.give_back();
    let history = |(handler, seen, has_claims, formerly): (_, _, _, String)| {
        let (seen, formerly) = (duration(seen), serde_json::from_str(&formerly).unwrap_or_default());
        History { handler, seen, has_claims, formerly }
    };
    Ok(rows.into_iter().map(history).collect())
}

/// Writes a page, because a full or read-only disk allows everything else.
const PROBE: &str = r#"UPDATE "idem_pruner" SET id = id"#;

/// If another task writes or waits for the writer, that task finds out whether writing works, and a read suffices here.
pub(super) async fn ping(store: &Sqlite) -> Result<(), StoreError> {
    let Some(connection) = store.file.writer_if_free().await else {
        let mut reader = store.file.reader().await?;
        let query = sqlx::query(store.prefix.sql(r#"SELECT id FROM "idem_pruner""#));
        query.fetch_one(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
        reader.give_back();
        return Ok(());
    };
    let mut connection = connection?;
    match probe(store, &mut connection).await.map_err(|error| store.file.fault(error)) {
        Ok(()) => {
            connection.give_back();
            Ok(())
        }
        // Another process writes, so writing is possible.
        Err(StoreError::LockTimeout) => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// Does not wait for other processes, because a ping should be fast.
async fn probe(store: &Sqlite, connection: &mut Connection) -> Result<(), sqlx::Error> {
    connection.run("PRAGMA busy_timeout = 0").await?;
    sqlx::query(store.prefix.sql(PROBE)).execute(connection.raw()).await?;
    connection.run("PRAGMA busy_timeout = 5000").await
}
