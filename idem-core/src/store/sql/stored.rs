//! Decodes inbox rows, alike for all databases.

use std::time::{SystemTime, UNIX_EPOCH};

use sqlx::{ColumnIndex, Database, Decode, Type};
use uuid::Uuid;

use crate::store::{CallAnswer, HandlerId, Identity, Row, envelope};
use crate::{Fingerprint, Key, Reason};

/// A value that a database has in a column.
pub(crate) trait Value<'r, D: Database>: Decode<'r, D> + Type<D> {}

impl<'r, D: Database, T: Decode<'r, D> + Type<D>> Value<'r, D> for T {}

/// Decodes a row from columns that have the names of those of `inbox_messages`, `handler` with the name of the handler, and
/// `is_calling`; those of a fetch have one more, `waited`. `time` converts the numbers that stand for times.
pub(crate) fn decode<'r, R: sqlx::Row>(row: &'r R, time: fn(i64) -> SystemTime) -> Result<Row, sqlx::Error>
where
    &'static str: ColumnIndex<R>,
    bool: Value<'r, R::Database>,
    i32: Value<'r, R::Database>,
    i64: Value<'r, R::Database>,
    String: Value<'r, R::Database>,
    Uuid: Value<'r, R::Database>,
    Vec<u8>: Value<'r, R::Database>,
{
    let count = |column: &'static str| Ok::<_, sqlx::Error>(u32::try_from(row.try_get::<i32, _>(column)?).unwrap_or(0));
    let moment = |column: &'static str| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(column)?.map(time));
    let bytes = |column: &'static str| row.try_get::<Vec<u8>, _>(column);
    let attempts = count("attempts")?;
    let (crash_count, is_calling) = (count("crash_count")?, row.try_get("is_calling")?);
    let (locked_by, called_by): (Option<Uuid>, Option<Uuid>) = (row.try_get("locked_by")?, row.try_get("called_by")?);
    let created_at = time(row.try_get("created_at")?);
    let identity = Identity {
        handler: HandlerId(row.try_get("handler_id")?),
        // The table's CHECK limits keys to 255 bytes.
        key: Key::stored(&bytes("key")?).unwrap_or(Key::empty()),
        fingerprint: Fingerprint::stored(&bytes("fingerprint")?),
    };
    Ok(Row {
        locked_by,
        crash_count: if is_calling { 0 } else { crash_count },
        attempts,
        lost_connections: count("lost_connections")?,
        deliveries: row.try_get::<i64, _>("deliveries")?.unsigned_abs(),
        // A reason that only a newer version of idem knows still means dead.
        reason: row
            .try_get::<Option<String>, _>("reason")?
            .map(|word| Reason::parse(&word).unwrap_or(Reason::Permanent)),
        error: row.try_get("error")?,
        run_at: time(row.try_get("run_at")?),
        locked_until: moment("locked_until")?,
        died_at: moment("died_at")?,
        waited: moment("waited").ok().flatten().and_then(|waited| waited.duration_since(UNIX_EPOCH).ok()),
        calls: is_calling.then_some(crash_count),
        provider_key: row.try_get("provider_key")?,
        called_at: moment("called_at")?,
        call_name: row.try_get("call_name")?,
        asked_at: moment("asked_at")?,
        is_first_call: locked_by.is_some() && locked_by == called_by,
        answer: row.try_get::<Option<Vec<u8>>, _>("answer")?.map(CallAnswer::new),
        ..Row::new(
            row.try_get("id")?,
            identity,
            // A handler that was deleted by hand leaves its rows behind; no worker fetches them, but they can be listed.
            row.try_get::<Option<String>, _>("handler")?.unwrap_or_default(),
            envelope::open(&bytes("envelope")?, bytes("payload")?, attempts),
            created_at,
        )
    })
}
