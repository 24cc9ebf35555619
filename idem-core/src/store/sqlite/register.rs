//! The names of handlers, each of which is a small integer.

use sqlx::sqlite::SqliteConnection;

use super::Sqlite;
use super::consumers_sql::{ADD_FORMER_NAME, FORGET, INTERN, KEEP, KEEP_NAME, NUMBER, RENAME};
use super::sql::millis;
use crate::store::{HandlerId, NUMBERS, number};

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
            let keep = store.query(KEEP).bind(id).bind(millis(store.retention));
            keep.execute(connection).await?;
            return Ok(HandlerId(id));
        }
        let query = store.query(INTERN).bind(consumer).bind(name).bind(millis(store.retention));
        query.bind(number(&[consumer, name], attempt)).execute(&mut *connection).await?;
    }
    find().fetch_one(connection).await.map(HandlerId)
}

/// Lets both names be one handler.
pub(super) async fn rename(
    store: &Sqlite,
    connection: &mut SqliteConnection,
    consumer: &str,
    old: &str,
    new: &str,
) -> Result<bool, sqlx::Error> {
    let find = |name| sqlx::query_scalar::<_, i32>(store.prefix.sql(NUMBER)).bind(consumer).bind(name);
    let before = find(old).fetch_optional(&mut *connection).await?;
    let after = find(new).fetch_optional(&mut *connection).await?;
    let forget = |id: i32| store.query(FORGET).bind(id);
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
        store.query(ADD_FORMER_NAME).bind(id).bind(old).execute(connection).await?;
        return Ok(true);
    }
    store.query(KEEP_NAME).bind(id).execute(&mut *connection).await?;
    store.query(RENAME).bind(id).bind(new).execute(connection).await?;
    Ok(true)
}
