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

/// One statement for every result: ?3 attempts to add, ?4 the answer, ?5 the delay, ?6 the reason if dead, ?7 the error, ?8
/// whether no call can have had an effect, ?9 whether the lease is left to end, ?10 whether a question has failed. The first
/// one begins the attempts anew. A row that is only given back keeps the earlier starts: they may have ended processes.
///
/// An answer is kept also if the lease has ended meanwhile, as in an outage: it is that of the key ?11, which the row has until
/// a person has said that no call under it had an effect.
pub(super) const RECORD: &str = r#"
UPDATE "idem_inbox_messages" SET
    locked_by = NULL,
    locked_until = NULL,
    crash_count = CASE WHEN ?4 IS NULL AND ?3 = 0 AND ?6 IS NULL THEN max(crash_count - 1, 0) ELSE 0 END,
    attempts = CASE WHEN ?4 IS NOT NULL THEN 0 WHEN ?10 AND asked_at IS NULL THEN ?3 ELSE attempts + ?3 END,
    asked_at = CASE WHEN ?10 THEN coalesce(asked_at, {now}) ELSE asked_at END,
    answer = ?4,
    called_at = CASE WHEN NOT ?8 THEN called_at END,
    called_by = CASE WHEN NOT ?8 THEN called_by END,
    call_name = CASE WHEN NOT ?8 THEN call_name END,
    run_at = max(CASE WHEN ?9 THEN coalesce(locked_until, 0) ELSE 0 END, {now} + ?5),
    reason = ?6,
    state = CASE WHEN ?6 IS NOT NULL THEN 'dead' WHEN ?4 IS NOT NULL THEN 'scheduled' ELSE 'calling' END,
    died_at = CASE WHEN ?6 IS NOT NULL THEN {now} END,
    error = coalesce(?7, error)
WHERE id = ?1 AND state IN ('calling', 'dead') AND answer IS NULL AND (locked_by = ?2 OR ?4 IS NOT NULL AND provider_key = ?11)"#;

pub(super) const DATE: &str = r#"
UPDATE "idem_inbox_messages" SET called_at = {now}, called_by = locked_by, asked_at = NULL,
    locked_until = {now} + ?3
WHERE id = ?1 AND locked_by = ?2 AND state = 'calling'"#;

pub(super) const LEAVE_TO_CALL: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, state = 'calling', crash_count = 0,
    lost_connections = 0, run_at = {now}, provider_key = coalesce(provider_key, ?3)
WHERE id = ?1 AND locked_by = ?2"#;

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

/// ?3: the answer; null: another call, which needs another key, and waits until no request of the last one can be on its way. A
/// row that has an answer is not called for again. ?5: the key that the person has looked for; ?4: the one that follows it.
pub(super) const RESOLVE: &str = r#"
UPDATE "idem_inbox_messages" SET
    state = CASE WHEN ?3 IS NULL THEN 'calling' ELSE 'scheduled' END,
    reason = NULL, died_at = NULL, locked_by = NULL, locked_until = NULL, crash_count = 0, attempts = 0, lost_connections = 0,
    run_at = CASE WHEN ?3 IS NULL THEN max(coalesce(locked_until, 0), run_at, {now}) ELSE {now} END,
    answer = ?3,
    provider_key = CASE WHEN ?3 IS NULL THEN ?4 ELSE provider_key END,
    called_at = CASE WHEN ?3 IS NOT NULL THEN called_at END,
    called_by = CASE WHEN ?3 IS NOT NULL THEN called_by END,
    call_name = NULL,
    asked_at = CASE WHEN ?3 IS NOT NULL THEN asked_at END
WHERE id = ?1 AND state = 'dead' AND provider_key = ?5 AND (?3 IS NOT NULL OR answer IS NULL)
    AND handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?2)"#;
