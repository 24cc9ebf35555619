//! Decoding of inbox rows, and conversions of values.

use std::time::{Duration, SystemTime};

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::store::{CallAnswer, HandlerId, Identity, Row, StoreError, envelope};
use crate::{Fingerprint, Key, Reason};

/// The columns that [`decode`] reads, of the row `i` and its handler `h`. Times are microseconds, which need no
/// calendar.
pub(super) const COLUMNS: &str = "
    i.id, i.handler_id, h.name, i.key, i.fingerprint, i.payload, i.envelope::text, i.locked_by, i.crash_count,
    i.attempts, i.lost_connections,
    i.deliveries, i.reason, i.error, (extract(epoch FROM i.created_at) * 1000000)::bigint,
    (extract(epoch FROM i.run_at) * 1000000)::bigint, (extract(epoch FROM i.died_at) * 1000000)::bigint,
    i.provider_key, (extract(epoch FROM i.called_at) * 1000000)::bigint, i.answer, i.called_by,
    (extract(epoch FROM i.asked_at) * 1000000)::bigint, i.call_name, i.state = 'calling',
    (extract(epoch FROM i.locked_until) * 1000000)::bigint";

/// Decodes all rows.
pub(super) fn all(rows: &[PgRow]) -> Result<Vec<Row>, StoreError> {
    Ok(rows.iter().map(decode).collect::<Result<_, _>>()?)
}

/// Decodes all rows, with one more column after [`COLUMNS`]: how long they had been due.
pub(super) fn all_due(rows: &[PgRow]) -> Result<Vec<Row>, StoreError> {
    let decode = |row: &PgRow| Ok(Row { waited: Some(duration(row.try_get(25)?)), ..decode(row)? });
    Ok(rows.iter().map(decode).collect::<Result<_, sqlx::Error>>()?)
}

fn decode(row: &PgRow) -> Result<Row, sqlx::Error> {
    let attempts = count(row.try_get(9)?);
    let reason: Option<String> = row.try_get(12)?;
    let (crash_count, is_calling) = (count(row.try_get(8)?), row.try_get(23)?);
    let (locked_by, called_by): (Option<Uuid>, Option<Uuid>) = (row.try_get(7)?, row.try_get(20)?);
    Ok(Row {
        id: row.try_get(0)?,
        identity: Identity {
            handler: HandlerId(row.try_get(1)?),
            // The table's CHECK limits keys to 255 bytes.
            key: Key::stored(row.try_get(3)?).unwrap_or(Key::empty()),
            fingerprint: Fingerprint::stored(row.try_get(4)?),
        },
        handler: row.try_get(2)?,
        delivery: envelope::open(row.try_get::<&str, _>(6)?.as_bytes(), row.try_get(5)?, attempts),
        locked_by,
        crash_count: if is_calling { 0 } else { crash_count },
        attempts,
        lost_connections: count(row.try_get(10)?),
        deliveries: row.try_get::<i64, _>(11)?.unsigned_abs(),
        // A reason that only a newer version of idem knows still means dead.
        reason: reason.map(|word| Reason::parse(&word).unwrap_or(Reason::Permanent)),
        error: row.try_get(13)?,
        created_at: time(row.try_get(14)?),
        run_at: time(row.try_get(15)?),
        locked_until: row.try_get::<Option<i64>, _>(24)?.map(time),
        died_at: row.try_get::<Option<i64>, _>(16)?.map(time),
        waited: None,
        calls: is_calling.then_some(crash_count),
        provider_key: row.try_get(17)?,
        called_at: row.try_get::<Option<i64>, _>(18)?.map(time),
        call_name: row.try_get(22)?,
        asked_at: row.try_get::<Option<i64>, _>(21)?.map(time),
        is_first_call: locked_by.is_some() && locked_by == called_by,
        answer: row.try_get::<Option<Vec<u8>>, _>(19)?.map(CallAnswer::new),
    })
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
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
