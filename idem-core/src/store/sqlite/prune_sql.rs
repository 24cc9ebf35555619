//! The statements that delete old claims.

/// Takes the turn for ?1 milliseconds, unless another pruner has it. Returns the last claim that was walked, how many claims there
/// are, the clock, and the shortest retention, if any claims are pruned. A turn that ends later was taken by a clock that was ahead.
pub(super) const ENTER: &str = r#"
UPDATE "idem_pruner" SET locked_until = {now} + ?1 WHERE locked_until NOT BETWEEN {now} AND {now} + ?1
RETURNING handler_id, key, max(size, walked), {now}, (SELECT min(retention) FROM "idem_handlers")"#;

/// The last one of the ?3 claims behind this one.
pub(super) const END: &str = r#"
SELECT handler_id, key FROM "idem_processed_messages" WHERE (handler_id, key) > (?1, ?2)
ORDER BY handler_id, key LIMIT 1 OFFSET ?3 - 1"#;

/// Deletes the old claims behind one claim up to another, at the time ?5.
pub(super) const DELETE: &str = r#"
DELETE FROM "idem_processed_messages" AS c WHERE (c.handler_id, c.key) > (?1, ?2) AND (c.handler_id, c.key) <= (?3, ?4)
    AND c.processed_at < ?5 - (SELECT h.retention FROM "idem_handlers" AS h WHERE h.id = c.handler_id)
    AND NOT EXISTS (
        SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = c.handler_id AND i.key = c.key
    )
RETURNING handler_id, processed_at"#;

pub(super) const PRUNED_THROUGH: &str = r#"
UPDATE "idem_handlers" SET pruned_through = max(coalesce(pruned_through, 0), ?2) WHERE id = ?1"#;

/// Records the claim behind which the walk continues, an empty key at the end of a round, and that it has read ?3 more; and gives
/// the turn back.
pub(super) const RECORD: &str = r#"
UPDATE "idem_pruner" SET locked_until = 0, handler_id = ?1, key = ?2,
    walked = iif(?2 = x'', 0, walked + ?3), size = iif(?2 = x'', walked + ?3, max(size, walked + ?3))"#;
