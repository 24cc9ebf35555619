//! The statements of the outbox.

/// Before the values of the rows.
pub(super) const STAGE: &str = r#"
INSERT INTO "idem_outbox_messages" (outbox_id, message_id, created_at, destination, key, envelope, payload)
VALUES "#;

pub(super) const REGISTER: &str = r#"
INSERT INTO "idem_outboxes" (id, name, namespace) VALUES (?3, ?1, ?2) ON CONFLICT DO NOTHING"#;

pub(super) const FIND: &str = r#"SELECT id, namespace FROM "idem_outboxes" WHERE name = ?1"#;

/// The conditions of a read, by its filter. Keys are a JSON array of what `hex()` makes of them.
pub(super) const EXCEPT: &str = r#"
(?6 = '[]' OR hex(key) NOT IN (SELECT value FROM json_each(?6)))
AND (key <> x'' OR destination NOT IN (SELECT value FROM json_each(?7)))"#;
pub(super) const OF_KEYS: &str = "hex(key) IN (SELECT value FROM json_each(?6))";
pub(super) const TO_DESTINATION: &str = "key = x'' AND destination = ?6";
pub(super) const BY_ID: &str = "id IN (SELECT value FROM json_each(?6))";

pub(super) const HIGHEST: &str = r#"SELECT coalesce(max(id), 0) FROM "idem_outbox_messages" WHERE outbox_id = ?1"#;

/// A read, before its condition.
pub(super) const READ: &str = r#"
SELECT id, message_id, attempts, destination, key, envelope, payload, created_at, {now} - created_at AS age,
       max(0, coalesce(run_at, 0) - {now}) AS due, length(payload) + length(envelope) AS size
FROM "idem_outbox_messages"
WHERE outbox_id = ?1 AND id BETWEEN ?2 AND ?3 AND id NOT IN (SELECT value FROM json_each(?4)) AND "#;

/// A read, behind its condition.
pub(super) const IN_ORDER: &str = " ORDER BY id LIMIT ?5";

/// Takes the place of `{ours}`: the row that is named, since its id may have been given again, while the lease is held under the
/// token.
pub(super) const OURS: &str = r#"outbox_id = ?1 AND id = ?3 AND message_id = ?4
    AND EXISTS (SELECT 1 FROM "idem_outboxes" WHERE id = ?1 AND locked_by = ?2)"#;

pub(super) const DELETE: &str = r#"DELETE FROM "idem_outbox_messages" WHERE {ours}"#;

pub(super) const RETRY: &str = r#"
UPDATE "idem_outbox_messages" SET attempts = max(attempts, ?6), run_at = {now} + ?7, error = ?5
WHERE {ours}"#;

/// Before [`DELETE`], in the same transaction.
pub(super) const BURY: &str = r#"
INSERT INTO "idem_outbox_dead"
    (outbox_id, message_id, created_at, died_at, attempts, error, destination, key, envelope, payload)
SELECT outbox_id, message_id, created_at, {now}, max(attempts, ?6), ?5, destination, key, envelope, payload
FROM "idem_outbox_messages" WHERE {ours}"#;

/// With the limit 0, only when a relay was last seen.
pub(super) const STATS: &str = r#"
SELECT (SELECT count(*) FROM (SELECT 1 FROM "idem_outbox_messages" WHERE outbox_id = ?1 LIMIT ?2)),
       (SELECT {now} - created_at FROM "idem_outbox_messages" WHERE outbox_id = ?1 ORDER BY id LIMIT min(1, ?2)),
       (SELECT count(*) FROM (SELECT 1 FROM "idem_outbox_dead" WHERE outbox_id = ?1 LIMIT ?2)),
       (SELECT {now} - nullif(relay_seen_at, 0) FROM "idem_outboxes" WHERE id = ?1)"#;

/// The outboxes with messages that no relay has looked at for so long.
pub(super) const UNREAD: &str = r#"
SELECT o.name, (SELECT count(*) FROM (SELECT 1 FROM "idem_outbox_messages" WHERE outbox_id = o.id LIMIT ?2)),
       {now} - (SELECT created_at FROM "idem_outbox_messages" WHERE outbox_id = o.id ORDER BY id LIMIT 1) AS oldest
FROM "idem_outboxes" AS o WHERE o.relay_seen_at < {now} - ?1 AND oldest > ?1"#;

pub(super) const DEAD: &str = r#"
SELECT id, message_id, attempts, destination, key, envelope, payload, created_at, error, died_at
FROM "idem_outbox_dead" WHERE outbox_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"#;

/// Notes dead letters that the transaction is about to delete: ?3, ?4 and ?5 are the command, its action and its actor.
pub(super) const NOTE: &str = r#"
INSERT INTO "idem_operations" (command, action, actor, outbox_id, row_id, key, attempts, error)
SELECT ?3, ?4, ?5, outbox_id, id, key, attempts, error
FROM "idem_outbox_dead" WHERE outbox_id = ?1 AND id IN (SELECT value FROM json_each(?2)) ORDER BY id"#;

/// Stages dead letters again, the oldest one first.
pub(super) const REPLAY: &str = r#"
INSERT INTO "idem_outbox_messages" (outbox_id, message_id, created_at, destination, key, envelope, payload)
SELECT outbox_id, message_id, created_at, destination, key, envelope, payload
FROM "idem_outbox_dead" WHERE outbox_id = ?1 AND id IN (SELECT value FROM json_each(?2)) ORDER BY id"#;

pub(super) const DISCARD: &str = r#"
DELETE FROM "idem_outbox_dead" WHERE outbox_id = ?1 AND id IN (SELECT value FROM json_each(?2)) RETURNING id"#;
