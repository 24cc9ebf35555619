//! SQL text, and conversions of values.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteRow;

use super::handle::Query;
use crate::Key;
use crate::store::{HandlerId, Row, Value, stored};

/// The database's clock in milliseconds; it does not change within one statement (SQLite manual, "Date And Time
/// Functions", 3).
pub(super) const NOW: &str = "CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)";

/// The columns that [`row`] reads. The column `id` of the inner table hides the outer one; `handler_id` does not.
const ROW: &str = r#"id, handler_id, key, fingerprint, payload, envelope, locked_by, locked_until, crash_count,
    attempts, lost_connections, deliveries,
    reason, error, created_at, run_at, died_at, provider_key, called_at, called_by, call_name, asked_at,
    answer, state = 'calling' AS is_calling,
    (SELECT h.name FROM "idem_handlers" AS h WHERE h.id = handler_id) AS handler"#;

/// The predicates of the indexes of ordinary rows, and of rows that may have ended a process or a connection. SQLite uses such an
/// index only for a statement that repeats its predicate.
const ORDINARY: &str = "state IN ('scheduled', 'running') AND crash_count = 0 AND lost_connections <= 1";
const ORPHAN: &str = "state IN ('scheduled', 'running') AND (crash_count >= 1 OR lost_connections >= 2)";

/// When a worker may have the row: the column of these indexes. That of a row that another one has locked is the end of its lease.
const DUE: &str = "coalesce(locked_until, run_at)";

/// The source of the message of a row `i`, unless its envelope is damaged.
const SOURCE: &str = "CASE WHEN json_valid(CAST(i.envelope AS TEXT)) THEN CAST(i.envelope AS TEXT) ->> 'source' END";

/// Fills in the text of a statement. `{now}` and `{clock}` are the clock, `{row}` the columns that [`row`] reads, `{greatest}`
/// that of its arguments; `{ordinary}`, `{orphan}`, `{due}` and `{source}` are of inbox rows.
pub(super) fn filled(text: &str) -> AssertSqlSafe<String> {
    let text = text.replace("{ordinary}", ORDINARY).replace("{orphan}", ORPHAN).replace("{due}", DUE);
    let text = text.replace("{source}", SOURCE);
    // Safe: the text consists of constants.
    AssertSqlSafe(text.replace("{row}", ROW).replace("{now}", NOW).replace("{clock}", NOW).replace("{greatest}", "max"))
}

/// Returns a statement, to bind values to.
pub(super) fn query<'q>(text: &str) -> Query<'q> {
    sqlx::query(filled(text))
}

/// Returns a statement with these values.
pub(super) fn bound<'q>(text: &str, values: &[Value]) -> Query<'q> {
    values.iter().fold(query(text), |query, value| match value {
        Value::Int(number) => query.bind(*number),
        Value::Text(text) => query.bind(text.as_deref()),
        Value::Bytes(bytes) => query.bind(bytes.as_deref()),
    })
}

/// Converts a duration to milliseconds, capped at 10,000 years, so that its sum with the clock is a valid date.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(315_360_000_000_000)
}

/// Handler ids as a JSON array, which `json_each` turns into a table: SQLite cannot bind arrays.
pub(super) fn ids(handlers: &[HandlerId]) -> String {
    json(&handlers.iter().map(|handler| handler.0).collect::<Vec<_>>())
}

/// Keys as a JSON array of what `hex()` makes of them.
pub(super) fn in_hex(keys: &[Key]) -> String {
    json(&keys.iter().map(|key| hex::encode_upper(key.as_bytes())).collect::<Vec<_>>())
}

/// A JSON array. Strings and numbers always have one.
pub(super) fn json<T: serde::Serialize>(values: &[T]) -> String {
    serde_json::to_string(values).unwrap_or_default()
}

/// Converts milliseconds to a duration; 0 if the clock was set back meanwhile.
pub(super) fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

pub(super) fn time(millis: i64) -> SystemTime {
    UNIX_EPOCH + duration(millis)
}

/// Converts a time to milliseconds.
pub(super) fn since_epoch(time: SystemTime) -> i64 {
    millis(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Decodes an inbox row.
pub(super) fn row(row: &SqliteRow) -> sqlx::Result<Row> {
    stored::decode(row, time)
}

/// Decodes inbox rows, oldest first: `RETURNING` guarantees no order.
pub(super) fn rows(rows: &[SqliteRow]) -> sqlx::Result<Vec<Row>> {
    let mut rows = rows.iter().map(row).collect::<sqlx::Result<Vec<_>>>()?;
    rows.sort_by_key(|row| row.id);
    Ok(rows)
}
