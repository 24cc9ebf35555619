//! Handlers, and the ping.

use std::time::Duration;

use sqlx::sqlite::SqliteConnection;

use super::Sqlite;
use super::file::Connection;
use super::sql::{NOW, duration, ids, millis};
use crate::store::{Cures, HandlerId, HandlerRows, History, StoreError, tell_of_retention};

const INTERN: &str = r#"
INSERT INTO "idem_handlers" (consumer, name, retention) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING"#;

/// The greater value wins. Null means forever, so it is never replaced.
const KEEP: &str = r#"
UPDATE "idem_handlers" SET retention = ?3 WHERE consumer = ?1 AND name = ?2 AND retention < ?3"#;

const RETENTION: &str = r#"SELECT retention FROM "idem_handlers" WHERE id = ?1"#;

const NUMBER: &str = r#"SELECT id FROM "idem_handlers" WHERE consumer = ?1 AND name = ?2"#;

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
    for text in [INTERN, KEEP] {
        let query = sqlx::query(store.prefix.sql(text)).bind(consumer).bind(name);
        query.bind(millis(store.retention)).execute(&mut *connection).await?;
    }
    let number = sqlx::query_scalar(store.prefix.sql(NUMBER)).bind(consumer).bind(name);
    number.fetch_one(connection).await.map(HandlerId)
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
SELECT EXISTS (
    SELECT 1 FROM "idem_handlers" WHERE id IN (SELECT value FROM json_each(?1)) AND seen_at < {now} - 30000)"#;

const SEEN: &str = r#"
UPDATE "idem_handlers" SET seen_at = {now}
WHERE id IN (SELECT value FROM json_each(?1)) AND seen_at < {now} - 30000"#;

/// Reads first, because reading never waits: then only one of the file's workers has to write.
pub(super) async fn record_seen(store: &Sqlite, handlers: &[HandlerId]) -> Result<(), StoreError> {
    let handlers = ids(handlers);
    let mut reader = store.file.reader().await?;
    let query = sqlx::query_scalar(store.prefix.sql(STALE)).bind(&handlers);
    let stale: bool = query.fetch_one(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
    reader.give_back();
    if stale {
        store.change(sqlx::query(store.prefix.sql(SEEN)).bind(&handlers)).await?;
    }
    Ok(())
}

const WAITING: &str = r#"
SELECT name, {now} - seen_at FROM "idem_handlers" AS h
WHERE consumer = ?1 AND EXISTS (SELECT 1 FROM "idem_inbox_messages" WHERE handler_id = h.id)
ORDER BY name"#;

pub(super) async fn waiting(store: &Sqlite, consumer: &str) -> Result<Vec<HandlerRows>, StoreError> {
    let mut reader = store.file.reader().await?;
    let query = sqlx::query_as(store.prefix.sql(WAITING)).bind(consumer);
    let rows: Vec<(String, i64)> =
        query.fetch_all(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
    reader.give_back();
    Ok(rows.into_iter().map(|(handler, seen)| HandlerRows { handler, seen: duration(seen) }).collect())
}

pub(super) fn cures(store: &Sqlite, consumer: &str, handler: &str, new: &str) -> Cures {
    let table = |table: &str| format!("\"{}{table}\"", store.prefix.as_str());
    Cures::new(table, NOW, store.latest_checked.initialized(), [consumer, handler, new])
}

/// A date that is before every message shows that the handler has processed messages, and makes none of them too old.
const RECORD_HISTORY: &str = r#"
UPDATE "idem_handlers" SET pruned_through = 0 WHERE id = ?1 AND pruned_through IS NULL"#;

pub(super) async fn record_history(store: &Sqlite, handler: HandlerId) -> Result<(), StoreError> {
    store.change(sqlx::query(store.prefix.sql(RECORD_HISTORY)).bind(handler.0)).await.map(|_| ())
}

/// `pruned_through` shows that a claim existed even if all claims were pruned, or that messages were processed without
/// claims. `{versions}` is the expression for whether it has latest versions.
const HISTORIES: &str = r#"
SELECT name, seen, has_claims, has_versions, has_claims OR pruned_through IS NOT NULL FROM (
    SELECT name, pruned_through, {now} - seen_at AS seen,
        EXISTS (SELECT 1 FROM "idem_processed_messages" WHERE handler_id = h.id) AS has_claims,
        {versions} AS has_versions
    FROM "idem_handlers" AS h WHERE consumer = ?1
) WHERE has_claims OR pruned_through IS NOT NULL OR has_versions
ORDER BY name"#;

const HAS_VERSIONS: &str = r#"EXISTS (SELECT 1 FROM "idem_latest_versions" WHERE handler_id = h.id)"#;

pub(super) async fn histories(store: &Sqlite, consumer: &str) -> Result<Vec<History>, StoreError> {
    let mut reader = store.file.reader().await?;
    let versions = if store.latest_checked.initialized() { HAS_VERSIONS } else { "0" };
    let text = HISTORIES.replace("{versions}", versions);
    let query = sqlx::query_as(store.prefix.sql(&text)).bind(consumer);
    let rows: Vec<(String, i64, bool, bool, bool)> =
        query.fetch_all(&mut reader.connection).await.map_err(|error| store.file.fault(error))?;
    reader.give_back();
    let history = |(handler, seen, has_claims, has_versions, has_processed)| {
        let seen = duration(seen);
        History { handler, seen, has_claims, has_versions, has_processed }
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
