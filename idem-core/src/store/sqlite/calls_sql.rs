//! The statements of external calls.

/// The rows that are due.
pub(super) const DUE: &str = "state = 'calling' AND {due} <= +{now}";

/// The oldest rows of all handlers, searched as those of an ordinary take are.
pub(super) const FIND: &str = r#"
SELECT m.id, m.handler_id, {now} - {due}
FROM json_each(?1) AS h CROSS JOIN "idem_inbox_messages" AS m
WHERE m.id IN (
    SELECT i.id FROM "idem_inbox_messages" AS i
    WHERE i.handler_id = h.value AND i.state = 'calling' AND {due} <= +{now} ORDER BY {due} LIMIT ?2
)
ORDER BY {due} LIMIT ?2"#;

/// The time of the first call is written before the call.
pub(super) const TAKE: &str = r#"
UPDATE "idem_inbox_messages" SET crash_count = crash_count + 1, locked_by = ?2, locked_until = {now} + ?3,
    provider_key = coalesce(provider_key, ?4), called_at = coalesce(called_at, {now}),
    called_by = CASE WHEN called_at IS NULL THEN ?2 ELSE called_by END,
    call_name = CASE WHEN called_at IS NULL THEN ?5 ELSE call_name END
WHERE id = ?1
RETURNING {row}"#;

pub(super) const IN_DOUBT: &str = r#"
SELECT count(*) FROM "idem_inbox_messages"
WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling' AND called_at IS NOT NULL"#;

/// ?2: how many rows to release.
pub(super) const RELEASE: &str = r#"
UPDATE "idem_inbox_messages" SET state = 'scheduled', crash_count = 0
WHERE id IN (
    SELECT id FROM "idem_inbox_messages"
    WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling' AND called_at IS NULL
    LIMIT ?2
)"#;
