//! Decoding of inbox rows, and conversions of values.

use std::time::{Duration, SystemTime};

use sqlx::FromRow;
use sqlx::postgres::PgRow;
use sqlx::postgres::types::PgInterval;

use crate::store::{Answer, HandlerId, Identity, Row, StoreError, stored};

/// The columns that `stored::decode` reads, of the row `i` and its handler `h`. Times are microseconds, which need no
/// calendar.
pub(super) const COLUMNS: &str = "
    i.id, i.handler_id, h.name AS handler, i.key, i.fingerprint, i.payload,
    pg_catalog.convert_to(i.envelope::text, 'UTF8') AS envelope, i.locked_by, i.crash_count, i.attempts, i.lost_connections,
    i.deliveries, i.reason, i.error, (extract(epoch FROM i.created_at) * 1000000)::bigint AS created_at,
    (extract(epoch FROM i.run_at) * 1000000)::bigint AS run_at,
    (extract(epoch FROM i.died_at) * 1000000)::bigint AS died_at, i.provider_key,
    (extract(epoch FROM i.called_at) * 1000000)::bigint AS called_at, i.answer, i.called_by,
    (extract(epoch FROM i.asked_at) * 1000000)::bigint AS asked_at, i.call_name, i.state = 'calling' AS is_calling,
    (extract(epoch FROM i.locked_until) * 1000000)::bigint AS locked_until";

/// Decodes the row of a statement that always returns one.
pub(super) fn one<T: for<'r> FromRow<'r, PgRow>>(rows: &[PgRow]) -> Answer<T> {
    let row = rows.first().ok_or_else(|| StoreError::Unavailable("a statement returned no row".into()))?;
    Ok(T::from_row(row)?)
}

/// Decodes inbox rows.
pub(super) fn all(rows: &[PgRow]) -> Answer<Vec<Row>> {
    Ok(rows.iter().map(|row| stored::decode(row, time)).collect::<Result<_, sqlx::Error>>()?)
}

/// Converts microseconds to a duration; 0 if the clock was set back meanwhile.
pub(super) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(super) fn time(micros: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + duration(micros)
}

/// Converts a time to microseconds.
pub(super) fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Converts a duration for `* interval '1 second'`, capped at a hundred years, so that its sum is a valid timestamp.
pub(super) fn secs(duration: Duration) -> f64 {
    duration.as_secs_f64().min(3.2e9)
}

/// Converts a duration to what can be added to a timestamp, capped likewise.
pub(super) fn interval(duration: Duration) -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: (secs(duration) * 1e6) as i64 }
}

/// Returns how many seconds a search goes back, at most a hundred years.
pub(super) fn back(since: Option<Duration>) -> f64 {
    secs(since.unwrap_or(Duration::MAX))
}

pub(super) fn ids(handlers: &[HandlerId]) -> Vec<i32> {
    handlers.iter().map(|handler| handler.0).collect()
}

pub(super) fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Handler ids and keys, for `unnest`.
pub(super) fn columns<'a>(identities: &[&'a Identity]) -> (Vec<i32>, Vec<&'a [u8]>) {
    identities.iter().map(|identity| (identity.handler.0, identity.key.as_bytes())).unzip()
}

pub(super) fn fingerprints<'a>(identities: &[&'a Identity]) -> Vec<&'a [u8]> {
    identities.iter().map(|identity| identity.fingerprint.as_bytes()).collect()
}

/// The values of a column, to be bound as an array.
pub(super) fn each<'r, R, T>(rows: &'r [R], value: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}
