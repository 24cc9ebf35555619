//! The statements of inbox rows.

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

pub(super) const COUNT_DUPLICATE: &str = r#"
UPDATE "idem_inbox_messages" SET deliveries = deliveries + 1
WHERE handler_id = ?1 AND key = ?2 AND fingerprint = ?3 AND state = 'dead'"#;

pub(super) const REMOVE: &str = r#"DELETE FROM "idem_inbox_messages" WHERE id = ?1 AND locked_by = ?2"#;

pub(super) const DATE: &str =
    r#"UPDATE "idem_processed_messages" SET processed_at = {now} WHERE handler_id = ?1 AND key = ?2"#;

// ===== in autocommit =====

/// The plus takes its affinity from the clock, here and below: otherwise SQLite compares in a way for which it does not search an
/// index of an expression.
pub(super) const POLL_DUE: &str = r#"
SELECT
    EXISTS (
        SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
            SELECT 1 FROM "idem_inbox_messages"
            WHERE handler_id = h.value AND state IN ('scheduled', 'running') AND crash_count = 0 AND lost_connections <= 1
                AND coalesce(locked_until, run_at) <= +{now}
        )
    ) AS ordinary,
    EXISTS (
        SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
            SELECT 1 FROM "idem_inbox_messages"
            WHERE handler_id = h.value AND state IN ('scheduled', 'running') AND (crash_count >= 1 OR lost_connections >= 2)
                AND crash_count <= 1 AND coalesce(locked_until, run_at) <= +{now}
        )
    ) AS suspect,
    EXISTS (
        SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
            SELECT 1 FROM "idem_inbox_messages"
            WHERE handler_id = h.value AND state IN ('scheduled', 'running') AND (crash_count >= 1 OR lost_connections >= 2)
                AND crash_count > 1 AND crash_count < ?2 AND coalesce(locked_until, run_at) <= +{now}
        )
    ) AS alone,
    EXISTS (
        SELECT 1 FROM json_each(?1) AS h WHERE EXISTS (
            SELECT 1 FROM "idem_inbox_messages"
            WHERE handler_id = h.value AND state IN ('scheduled', 'running') AND (crash_count >= 1 OR lost_connections >= 2)
                AND crash_count >= ?2 AND coalesce(locked_until, run_at) < {now} - ?3
        )
    ) AS crashed"#;

/// The rows that a take is about to take: how large they are, and how long they have been due, since RETURNING sees
/// only the new values. Uses the same indexes as the take. It does not run in the same transaction: a row that appears
/// or disappears in between is only missing in a histogram, or slightly exceeds the limit.
pub(super) const DUE: &str = r#"
SELECT m.id, {now} - coalesce(m.locked_until, m.run_at) AS waited, length(m.payload) + length(m.envelope) AS bytes
FROM json_each(?1) AS h CROSS JOIN "idem_inbox_messages" AS m
WHERE m.id IN (
    SELECT i.id FROM "idem_inbox_messages" AS i
    WHERE i.handler_id = h.value AND i.state IN ('scheduled', 'running') AND i.crash_count = 0 AND i.lost_connections <= 1
        AND coalesce(i.locked_until, i.run_at) <= +{now}
    ORDER BY coalesce(i.locked_until, i.run_at) LIMIT ?2
)
ORDER BY coalesce(m.locked_until, m.run_at) LIMIT ?2"#;

/// The inner query runs once per handler, so that the index finds its earliest rows, regardless of how many rows are
/// due and of the rows of other consumers. SQLite has no LATERAL, and an `IN` list would sort all due rows.
macro_rules! take {
    ($kind:literal) => {
        concat!(
            r#"
UPDATE "idem_inbox_messages" SET state = 'running', crash_count = crash_count + 1, locked_until = {now} + ?3, locked_by = ?4
WHERE id IN (
    SELECT m.id FROM json_each(?1) AS h CROSS JOIN "idem_inbox_messages" AS m
    WHERE m.id IN (
        SELECT i.id FROM "idem_inbox_messages" AS i
        WHERE i.handler_id = h.value AND i.state IN ('scheduled', 'running') AND "#,
            $kind,
            r#" AND coalesce(i.locked_until, i.run_at) <= +{now}
        ORDER BY coalesce(i.locked_until, i.run_at) LIMIT ?2
    )
    ORDER BY coalesce(m.locked_until, m.run_at) LIMIT ?2
)
RETURNING {row}"#
        )
    };
}
pub(super) const TAKE_ORDINARY: &str = take!("i.crash_count = 0 AND i.lost_connections <= 1");
pub(super) const TAKE_SUSPECT: &str = take!("(i.crash_count >= 1 OR i.lost_connections >= 2) AND i.crash_count <= 1");
pub(super) const TAKE_ALONE: &str =
    take!("(i.crash_count >= 1 OR i.lost_connections >= 2) AND i.crash_count > 1 AND i.crash_count < ?5");

pub(super) const TAKEN: &str = r#"SELECT {row} FROM "idem_inbox_messages" WHERE locked_by = ?1"#;

/// `?3` the delay until the row is due, `?4` the reason if it becomes dead, `?5` the error; in [`BROKE`], `?6` the
/// number of breaks at which it does.
pub(super) const FAILED: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, attempts = attempts + 1, crash_count = 0,
    lost_connections = 0, error = ?5,
    run_at = {now} + ?3, reason = ?4, state = CASE WHEN ?4 IS NULL THEN 'scheduled' ELSE 'dead' END,
    died_at = CASE WHEN ?4 IS NOT NULL THEN {now} END
WHERE id = ?1 AND locked_by = ?2"#;

pub(super) const BROKE: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, crash_count = max(crash_count - 1, 0),
    lost_connections = lost_connections + 1, error = ?5,
    run_at = {now} + ?3, reason = CASE WHEN lost_connections + 1 >= ?6 THEN ?4 END,
    state = CASE WHEN lost_connections + 1 >= ?6 THEN 'dead' ELSE 'scheduled' END,
    died_at = CASE WHEN lost_connections + 1 >= ?6 THEN {now} END
WHERE id = ?1 AND locked_by = ?2"#;

pub(super) const GIVEN_BACK: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, state = 'scheduled',
    crash_count = max(crash_count - 1, 0), run_at = {now} + ?3
WHERE id = ?1 AND locked_by = ?2"#;

pub(super) const RELEASED: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, state = 'scheduled', run_at = {now} + ?3
WHERE id = ?1 AND locked_by = ?2"#;

pub(super) const DEAD: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, error = ?5, reason = ?4, state = 'dead', died_at = {now}
WHERE id = ?1 AND locked_by = ?2"#;

pub(super) const EXTEND: &str = r#"
UPDATE "idem_inbox_messages" SET locked_until = {now} + ?3
WHERE id IN (SELECT value FROM json_each(?1)) AND locked_by = ?2"#;

pub(super) const IS_SCHEDULED: &str = r#"
SELECT 1 FROM "idem_inbox_messages" WHERE handler_id = ?1 AND key = ?2 AND state <> 'dead'"#;

pub(super) const REFUND_START: &str = r#"
UPDATE "idem_inbox_messages" SET crash_count = max(crash_count - 1, 0) WHERE id = ?1 AND crash_count > 0 AND state <> 'calling'"#;

pub(super) const DEAD_LETTER_CRASHED: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, state = 'dead', reason = ?4, died_at = {now},
    error = ?6 || CASE error WHEN '' THEN '' ELSE '; the error of its last attempt: ' || error END
WHERE id IN (
    SELECT i.id FROM "idem_inbox_messages" AS i
    WHERE i.handler_id IN (SELECT value FROM json_each(?1)) AND i.state IN ('scheduled', 'running')
        AND (i.crash_count >= 1 OR i.lost_connections >= 2) AND i.crash_count >= ?2
        AND coalesce(i.locked_until, i.run_at) < {now} - ?3
    LIMIT ?5
)
RETURNING {row}"#;
