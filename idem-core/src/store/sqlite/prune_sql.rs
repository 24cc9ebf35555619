//! The statements that delete old claims.

/// Takes the turn, which others can take after ?2 milliseconds. No row is changed while another pruner has it.
pub(super) const ENTER: &str = r#"
UPDATE "idem_pruner" SET locked_by = ?1, locked_until = {now} + ?2
WHERE locked_by IS NULL OR locked_by = ?1 OR locked_until < {now}"#;

/// Where the walk continues, how far it is behind, how many claims this round and the last one have read, the shortest
/// retention, if any claims are pruned, and the clock.
pub(super) const PLACE: &str = r#"
SELECT handler_id, key, {now} - caught_up_to AS behind, walked, size, (SELECT min(retention) FROM "idem_handlers") AS retention,
    {now} AS now
FROM "idem_pruner""#;

/// The number of claims behind this one, up to ?3.
pub(super) const COUNT: &str = r#"
SELECT count(*) FROM (SELECT 1 FROM "idem_processed_messages" WHERE (handler_id, key) > (?1, ?2) LIMIT ?3)"#;

/// The last one of the ?3 claims behind this one.
pub(super) const END: &str = r#"
SELECT handler_id, key FROM "idem_processed_messages" WHERE (handler_id, key) > (?1, ?2)
ORDER BY handler_id, key LIMIT 1 OFFSET ?3 - 1"#;

/// The old ones among the ?3 claims behind this one, at the time ?4.
pub(super) const FIND: &str = r#"
SELECT c.handler_id, c.key FROM (
    SELECT handler_id, key, processed_at FROM "idem_processed_messages" WHERE (handler_id, key) > (?1, ?2)
    ORDER BY handler_id, key LIMIT ?3
) AS c
WHERE c.processed_at < ?4 - (SELECT h.retention FROM "idem_handlers" AS h WHERE h.id = c.handler_id)
    AND NOT EXISTS (
        SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = c.handler_id AND i.key = c.key
    )"#;

/// Deletes the old claims from one claim to another, at the time ?5.
pub(super) const DELETE: &str = r#"
DELETE FROM "idem_processed_messages" AS c WHERE (c.handler_id, c.key) >= (?1, ?2) AND (c.handler_id, c.key) <= (?3, ?4)
    AND c.processed_at < ?5 - (SELECT h.retention FROM "idem_handlers" AS h WHERE h.id = c.handler_id)
    AND NOT EXISTS (
        SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = c.handler_id AND i.key = c.key
    )
RETURNING handler_id, processed_at"#;

pub(super) const PRUNED_THROUGH: &str = r#"
UPDATE "idem_handlers" SET pruned_through = max(coalesce(pruned_through, 0), ?2) WHERE id = ?1"#;

/// Records where the walk continues and that it has caught up ?6 milliseconds, and keeps the turn for ?7 milliseconds, or
/// gives it to others.
pub(super) const RECORD: &str = r#"
UPDATE "idem_pruner" SET locked_by = iif(?7 > 0, locked_by, NULL), locked_until = iif(?7 > 0, {now} + ?7, 0),
    handler_id = ?2, key = ?3,
    walked = ?4, size = ?5, caught_up_to = min({now}, caught_up_to + ?6)
WHERE locked_by = ?1"#;
