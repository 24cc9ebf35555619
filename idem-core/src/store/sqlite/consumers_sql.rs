//! The statements of consumers: of their handlers, and of operators.

pub(super) const INTERN: &str = r#"
INSERT INTO "idem_handlers" (id, consumer, name, retention) VALUES (?4, ?1, ?2, ?3) ON CONFLICT DO NOTHING"#;

/// The greater value wins. Null means forever, so it is never replaced.
pub(super) const KEEP: &str = r#"
UPDATE "idem_handlers" SET retention = ?2 WHERE id = ?1 AND retention < ?2"#;

pub(super) const STALE: &str = r#"
SELECT coalesce(sum(seen_at < {now} - 30000), 0), count(*) = (SELECT count(DISTINCT value) FROM json_each(?1))
FROM "idem_handlers" WHERE id IN (SELECT value FROM json_each(?1))"#;

pub(super) const SEEN: &str = r#"
UPDATE "idem_handlers" SET seen_at = {now}
WHERE id IN (SELECT value FROM json_each(?1)) AND seen_at < {now} - 30000"#;

/// A date that is before every message shows that the handler has processed messages, and makes none of them too old.
pub(super) const PROCESSES: &str = r#"
UPDATE "idem_handlers" SET pruned_through = 0 WHERE id IN (SELECT value FROM json_each(?1)) AND pruned_through IS NULL"#;

/// The namespace is the default of its column, a random value.
pub(super) const CALLS: &str = r#"
INSERT INTO "idem_call_namespaces" (handler_id) SELECT id FROM "idem_handlers" WHERE id IN (SELECT value FROM json_each(?1))
ON CONFLICT DO NOTHING"#;

/// `pruned_through` shows that a claim existed even if all claims were pruned, or that messages were processed without
/// claims.
pub(super) const KNOWN: &str = r#"
SELECT *, has_claims OR pruned_through IS NOT NULL AS has_processed FROM (
    SELECT id, consumer, name, retention, pruned_through, {now} - seen_at AS seen,
        (SELECT json_group_array(f.name) FROM "idem_former_names" AS f WHERE f.handler_id = h.id) AS former_names,
        EXISTS (SELECT 1 FROM "idem_processed_messages" WHERE handler_id = h.id) AS has_claims,
        EXISTS (SELECT 1 FROM "idem_inbox_messages" WHERE handler_id = h.id) AS has_rows,
        (SELECT namespace FROM "idem_call_namespaces" WHERE handler_id = h.id) AS namespace
    FROM "idem_handlers" AS h WHERE consumer = coalesce(?1, consumer)
) ORDER BY consumer, name"#;

/// Counts in the four partial indexes, so that payloads are not read.
pub(super) const STATS: &str = r#"
SELECT sum(scheduled),
    (SELECT count(*) FROM "idem_inbox_messages"
     WHERE +handler_id IN (SELECT value FROM json_each(?1)) AND state = 'dead'),
    {now} - min(due)
FROM (
    SELECT count(*) AS scheduled, min({due}) FILTER (WHERE {due} <= {now}) AS due
    FROM "idem_inbox_messages" WHERE handler_id IN (SELECT value FROM json_each(?1)) AND {ordinary}
    UNION ALL SELECT count(*), min({due}) FILTER (WHERE {due} <= {now})
    FROM "idem_inbox_messages" WHERE handler_id IN (SELECT value FROM json_each(?1)) AND {orphan}
    UNION ALL SELECT count(*), min({due}) FILTER (WHERE {due} <= {now})
    FROM "idem_inbox_messages" WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling'
)"#;

/// Before a condition takes the place of `{which}`. The plus keeps the planner from using an index by handler, after which it
/// would have to sort all rows.
pub(super) const LIST: &str = r#"
SELECT {row} FROM "idem_inbox_messages"
WHERE state {which} AND id < ?1 AND (?2 IS NULL OR reason = ?2)
    AND +handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?3 AND (?4 IS NULL OR h.name = ?4
        OR EXISTS (SELECT 1 FROM "idem_former_names" AS f WHERE f.handler_id = h.id AND f.name = ?4)))
    AND (?6 IS NULL OR hex(key) IN (SELECT value FROM json_each(?6)))
ORDER BY id DESC LIMIT ?5"#;

/// ?3: the key of the call that an operator resolves; without one, a row whose call may have begun stays, whatever made it dead.
pub(super) const DISCARD: &str = r#"
DELETE FROM "idem_inbox_messages"
WHERE id = ?1 AND state = 'dead' AND handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = ?2)
    AND CASE WHEN ?3 IS NOT NULL THEN provider_key = ?3 ELSE called_at IS NULL AND answer IS NULL END
RETURNING handler_id, key, reason"#;

pub(super) const DATE: &str = r#"
UPDATE "idem_processed_messages" SET processed_at = {now}
WHERE handler_id = ?1 AND key = ?2 AND processed_at IS NULL"#;
