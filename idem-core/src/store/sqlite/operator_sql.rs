//! The statements of operators.

/// Counts in the four partial indexes, so that payloads are not read.
pub(super) const STATS: &str = r#"
SELECT
    (
        SELECT count(*) FROM "idem_inbox_messages"
        WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state IN ('scheduled', 'running')
            AND crash_count = 0 AND lost_connections <= 1
    ) + (
        SELECT count(*) FROM "idem_inbox_messages"
        WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state IN ('scheduled', 'running')
            AND (crash_count >= 1 OR lost_connections >= 2)
    ) + (
        SELECT count(*) FROM "idem_inbox_messages"
        WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling'
    ) AS scheduled,
    (
        SELECT count(*) FROM "idem_inbox_messages"
        WHERE +handler_id IN (SELECT value FROM json_each(?1)) AND state = 'dead'
    ) AS dead,
    {now} - (
        SELECT min(due) FROM (
            SELECT (
                SELECT min(coalesce(locked_until, run_at)) FROM "idem_inbox_messages"
                WHERE handler_id = h.value AND state IN ('scheduled', 'running')
            AND crash_count = 0 AND lost_connections <= 1
            ) AS due FROM json_each(?1) AS h
            UNION ALL SELECT (
                SELECT min(coalesce(locked_until, run_at)) FROM "idem_inbox_messages"
                WHERE handler_id = h.value AND state IN ('scheduled', 'running')
            AND (crash_count >= 1 OR lost_connections >= 2)
            ) FROM json_each(?1) AS h
            UNION ALL SELECT (
                SELECT min(coalesce(locked_until, run_at)) FROM "idem_inbox_messages"
                WHERE handler_id = h.value AND state = 'calling'
            ) FROM json_each(?1) AS h
        )
        WHERE due <= {now}
    ) AS oldest"#;

/// The plus keeps the planner from using an index by handler, after which it would have to sort all rows.
macro_rules! list {
    ($which:literal) => {
        concat!(
            r#"
SELECT {row} FROM "idem_inbox_messages"
WHERE state "#,
            $which,
            r#" AND id < ?1 AND (?2 IS NULL OR reason = ?2)
    AND +handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?3 AND (?4 IS NULL OR h.name = ?4
        OR EXISTS (SELECT 1 FROM "idem_former_names" AS f WHERE f.handler_id = h.id AND f.name = ?4)))
    AND (?6 IS NULL OR hex(key) IN (SELECT value FROM json_each(?6)))
ORDER BY id DESC LIMIT ?5"#
        )
    };
}
pub(super) const SCHEDULED: &str = list!("<> 'dead'");
pub(super) const DEAD: &str = list!("= 'dead'");

pub(super) const FIND: &str = r#"
SELECT handler_id, fingerprint, reason FROM "idem_inbox_messages"
WHERE id = ?1 AND state = 'dead' AND handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?2)"#;

/// A row that ended processes or connections runs as a suspect again: breaks is set to 2 to mark it, because starts is
/// reset to 0. A row whose external call may have begun, and that has no answer, goes back to its call phase, with the
/// key, the time of its first call, and the end of its lease, because its request may still be on its way.
pub(super) const REPLAY: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, crash_count = 0, attempts = 0,
    state = CASE WHEN called_at IS NOT NULL AND answer IS NULL THEN 'calling' ELSE 'scheduled' END,
    run_at = CASE WHEN called_at IS NOT NULL AND answer IS NULL THEN max(coalesce(locked_until, 0), run_at, {now}) ELSE {now} END,
    lost_connections = CASE WHEN (called_at IS NULL OR answer IS NOT NULL) AND reason IN ('crashed', 'broke its connection')
        THEN 2 ELSE 0 END,
    reason = NULL, died_at = NULL, asked_at = NULL, key = coalesce(?2, key)
WHERE id = ?1"#;

/// ?3: the key of the call that an operator resolves; without one, a row whose call may have begun stays, whatever made it dead.
pub(super) const DISCARD: &str = r#"
DELETE FROM "idem_inbox_messages"
WHERE id = ?1 AND state = 'dead' AND handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?2)
    AND CASE WHEN ?3 IS NOT NULL THEN provider_key = ?3 ELSE called_at IS NULL AND answer IS NULL END
RETURNING handler_id, key, reason"#;

pub(super) const DATE: &str = r#"
UPDATE "idem_processed_messages" SET processed_at = {now}
WHERE handler_id = ?1 AND key = ?2 AND processed_at IS NULL"#;

pub(super) const CONSUMERS: &str = r#"SELECT DISTINCT consumer FROM "idem_handlers" ORDER BY consumer"#;
