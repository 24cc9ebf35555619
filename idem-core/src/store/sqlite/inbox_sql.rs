//! The statements of inbox rows.

use crate::store::sql::statements;
use crate::store::{MAX_STARTS, RowKind};

// ===== in a transaction =====

pub(super) const INSERT: &str = r#"
INSERT INTO "idem_inbox_messages"
    (handler_id, key, fingerprint, payload, envelope, attempts, error, state, reason, created_at, run_at, died_at,
     provider_key, answer, call_name, called_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, CASE WHEN ?8 IS NOT NULL THEN 'dead' WHEN ?14 THEN 'calling' ELSE 'scheduled' END, ?8,
    {now}, {now} + ?9, CASE WHEN ?8 IS NOT NULL THEN {now} END, ?10, ?11, ?12, ?13
WHERE true
ON CONFLICT (handler_id, key, fingerprint) DO UPDATE SET deliveries = deliveries + 1
RETURNING id"#;

pub(super) const REMOVE: &str = r#"DELETE FROM "idem_inbox_messages" WHERE id = ?1 AND locked_by = ?2"#;

pub(super) const DATE: &str =
    r#"UPDATE "idem_processed_messages" SET processed_at = {now} WHERE handler_id = ?1 AND key = ?2"#;

// ===== in autocommit =====

/// Whether one of the handlers has such a row.
pub(super) fn has(which: &str) -> String {
    format!(
        r#"EXISTS (SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
    SELECT 1 FROM "idem_inbox_messages" WHERE handler_id = h.value AND {which}
))"#
    )
}

/// The plus takes its affinity from the clock, here and below: otherwise SQLite compares in a way for which it does not search an
/// index of an expression.
pub(super) fn poll_due() -> String {
    let [ordinary, orphan, alone, crashed] = [
        "{ordinary} AND {due} <= +{now}",
        "{orphan} AND crash_count <= 1 AND {due} <= +{now}",
        "{orphan} AND crash_count > 1 AND crash_count < ?2 AND {due} <= +{now}",
        "{orphan} AND crash_count >= ?2 AND {due} < {now} - ?3",
    ]
    .map(has);
    format!("SELECT {ordinary}, {orphan}, {alone}, {crashed}")
}

/// Rows in their call phase.
pub(super) const CALLING: &str = "state = 'calling' AND {due} <= +{now}";

/// The inner query runs once per handler, so that the index finds its earliest rows, regardless of how many rows are
/// due and of the rows of other consumers. SQLite has no LATERAL, and an `IN` list would sort all due rows. It returns id, time and
/// size of the rows, because a join by their ids reads the whole table if `ANALYZE` has found a small one. $1: handlers, each with
/// its lease and the name of its call; $2 the limit, $3 the token, $4 the limit of bytes. The sizes of a row are read without its
/// payload. RETURNING sees only the new values, so a row that lost its lease does not tell how long it has been due.
pub(super) fn fetch(kind: RowKind) -> String {
    let which = match kind {
        RowKind::Ordinary => "{ordinary} AND {due} <= +{now}",
        RowKind::Orphan => "{orphan} AND crash_count <= 1 AND {due} <= +{now}",
        RowKind::Alone => "{orphan} AND crash_count IN (2, 3) AND {due} <= +{now}",
        RowKind::Calling => CALLING,
    };
    let fetch = r#"
UPDATE "idem_inbox_messages" AS i
SET crash_count = i.crash_count + 1, locked_by = $3, locked_until = {now} + due.lease, {fetched}
FROM (
    SELECT found.value ->> 0 AS id, h.value ->> 1 AS lease, h.value ->> 2 AS call, sum(found.value ->> 2) OVER (
        ORDER BY found.value ->> 1, found.value ->> 0 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before
    FROM json_each($1) AS h CROSS JOIN json_each((
        SELECT json_group_array(json_array(id, at, bytes)) FROM (
            SELECT f.id, {due} AS at, length(payload) + length(envelope) AS bytes FROM "idem_inbox_messages" AS f
            WHERE f.handler_id = h.value ->> 0 AND {which} ORDER BY {due} LIMIT $2
        )
    )) AS found
    ORDER BY found.value ->> 1, found.value ->> 0 LIMIT $2
) AS due
WHERE i.id = due.id AND coalesce(due.before, 0) < $4
RETURNING {row}, CASE WHEN crash_count = 1 THEN {now} - run_at END AS waited"#;
    fetch.replace("{which}", which).replace("{fetched}", statements::fetched(kind))
}
const _: () = assert!(MAX_STARTS == 4);

pub(super) const IN_DOUBT: &str = r#"
SELECT count(*) FROM "idem_inbox_messages"
WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling' AND called_at IS NOT NULL"#;

/// ?2: how many rows to release.
pub(super) const RELEASE_CALLS: &str = r#"
UPDATE "idem_inbox_messages" SET state = 'scheduled', crash_count = 0
WHERE id IN (
    SELECT id FROM "idem_inbox_messages"
    WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling' AND called_at IS NULL
    LIMIT ?2
)"#;

pub(super) const ROWS_BY_TOKEN: &str = r#"SELECT {row} FROM "idem_inbox_messages" WHERE locked_by = ?1"#;

pub(super) const EXTEND: &str = r#"
UPDATE "idem_inbox_messages" SET locked_until = {now} + ?3
WHERE id IN (SELECT value FROM json_each(?1)) AND locked_by = ?2"#;

pub(super) const DEAD_LETTER_CRASHED: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, state = 'dead', reason = ?4, died_at = {now},
    error = ?6 || CASE error WHEN '' THEN '' ELSE '; the error of its last attempt: ' || error END
WHERE id IN (
    SELECT id FROM "idem_inbox_messages"
    WHERE handler_id IN (SELECT value FROM json_each(?1)) AND {orphan} AND crash_count >= ?2 AND {due} < {now} - ?3
    LIMIT ?5
)
RETURNING {row}"#;
