//! The statements of relays, and of operators of the outbox.

pub(super) const GONE: &str = r#"DELETE FROM "idem_outbox_relays" WHERE outbox_id = ?1 AND alive_until < {now}"#;

pub(super) const ALIVE: &str = r#"
INSERT INTO "idem_outbox_relays" (outbox_id, token, alive_until) VALUES (?1, ?2, {now} + ?3)
ON CONFLICT (outbox_id, token) DO UPDATE SET alive_until = excluded.alive_until"#;

pub(super) const RENEW: &str = r#"
UPDATE "idem_outbox_lanes" SET locked_until = {now} + ?3 WHERE outbox_id = ?1 AND locked_by = ?2 RETURNING lane"#;

pub(super) const RELAYS: &str = r#"
SELECT count(*) FROM "idem_outbox_relays" WHERE outbox_id = ?1 AND alive_until >= {now}"#;

/// How many lanes can be taken.
pub(super) const FREE: &str = r#"
SELECT count(*) FROM "idem_outbox_lanes" WHERE outbox_id = ?1 AND (locked_by IS NULL OR locked_until < {now})"#;

pub(super) const TAKE: &str = r#"
UPDATE "idem_outbox_lanes" SET locked_by = ?2, locked_until = {now} + ?3
WHERE outbox_id = ?1 AND lane IN (
    SELECT lane FROM "idem_outbox_lanes"
    WHERE outbox_id = ?1 AND (locked_by IS NULL OR locked_until < {now}) ORDER BY lane LIMIT ?4
)
RETURNING lane"#;

/// The lanes are a JSON array; null means all.
pub(super) const GIVE: &str = r#"
UPDATE "idem_outbox_lanes" SET locked_by = NULL, locked_until = 0
WHERE outbox_id = ?1 AND locked_by = ?2 AND (?3 IS NULL OR lane IN (SELECT value FROM json_each(?3)))"#;

pub(super) const LEAVE: &str = r#"DELETE FROM "idem_outbox_relays" WHERE outbox_id = ?1 AND token = ?2"#;

/// The blocked keys are a JSON array of what `hex()` makes of them.
pub(super) const READ: &str = r#"
SELECT id, lane, message_id, attempts, destination, key, envelope, payload, created_at, {now} - created_at AS age,
       max(0, coalesce(run_at, 0) - {now}) AS due, length(payload) + length(envelope) AS size
FROM "idem_outbox_messages"
WHERE outbox_id = ?1 AND lane = ?2 AND id >= ?3
  AND (?5 = '[]' OR hex(key) NOT IN (SELECT value FROM json_each(?5)))
  AND id NOT IN (SELECT value FROM json_each(?6))
ORDER BY id LIMIT ?4"#;

pub(super) const HIGHEST: &str = r#"
SELECT id FROM "idem_outbox_messages" WHERE outbox_id = ?1 AND lane = ?2 ORDER BY id DESC LIMIT 1"#;

pub(super) const DELETE: &str = r#"
DELETE FROM "idem_outbox_messages"
WHERE outbox_id = ?1 AND lane = ?3 AND id = ?4 AND message_id = ?5 AND EXISTS (
    SELECT 1 FROM "idem_outbox_lanes" AS l WHERE l.outbox_id = ?1 AND l.lane = ?3 AND l.locked_by = ?2
)"#;

pub(super) const RETRY: &str = r#"
UPDATE "idem_outbox_messages" SET attempts = max(attempts, ?8), run_at = {now} + ?6, error = ?7
WHERE outbox_id = ?1 AND lane = ?3 AND id = ?4 AND message_id = ?5 AND EXISTS (
    SELECT 1 FROM "idem_outbox_lanes" AS l WHERE l.outbox_id = ?1 AND l.lane = ?3 AND l.locked_by = ?2
)"#;

/// Before [`DELETE`], in the same transaction.
pub(super) const BURY: &str = r#"
INSERT INTO "idem_outbox_dead"
    (outbox_id, lane, message_id, created_at, died_at, attempts, error, destination, key, envelope, payload)
SELECT outbox_id, lane, message_id, created_at, {now}, max(attempts, ?7), ?6, destination, key, envelope, payload
FROM "idem_outbox_messages" AS m
WHERE outbox_id = ?1 AND lane = ?3 AND id = ?4 AND message_id = ?5 AND EXISTS (
    SELECT 1 FROM "idem_outbox_lanes" AS l WHERE l.outbox_id = ?1 AND l.lane = ?3 AND l.locked_by = ?2
)"#;

pub(super) const STATS: &str = r#"
SELECT (SELECT count(*) FROM (SELECT 1 FROM "idem_outbox_messages" WHERE outbox_id = ?1 LIMIT ?2)),
       (SELECT {now} - created_at FROM "idem_outbox_messages" WHERE outbox_id = ?1 AND lane = 0 ORDER BY id LIMIT 1),
       (SELECT count(*) FROM (SELECT 1 FROM "idem_outbox_dead" WHERE outbox_id = ?1 LIMIT ?2)),
       (SELECT count(*) FROM "idem_outbox_relays" WHERE outbox_id = ?1 AND alive_until >= {now})"#;

pub(super) const DEAD: &str = r#"
SELECT id, lane, message_id, attempts, destination, key, envelope, payload, created_at, error, died_at
FROM "idem_outbox_dead" WHERE outbox_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"#;

pub(super) const REPLAY: &str = r#"
INSERT INTO "idem_outbox_messages" (outbox_id, lane, message_id, created_at, destination, key, envelope, payload)
SELECT outbox_id, lane, message_id, created_at, destination, key, envelope, payload
FROM "idem_outbox_dead" WHERE outbox_id = ?1 AND id = ?2"#;

pub(super) const DISCARD: &str = r#"DELETE FROM "idem_outbox_dead" WHERE outbox_id = ?1 AND id = ?2"#;
