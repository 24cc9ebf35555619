//! The statements of handlers and their claims.

/// Never `INSERT OR IGNORE`: it treats any constraint violation as a duplicate. Also returns how far claims were
/// pruned.
pub(super) const CLAIM: &str = r#"
INSERT INTO "idem_processed_messages" (handler_id, key, fingerprint, processed_at)
SELECT ?1, ?2, ?3, CASE WHEN ?4 THEN {now} END
WHERE NOT EXISTS (SELECT 1 FROM "idem_processed_messages" WHERE handler_id = ?1 AND key = ?2)
ON CONFLICT DO NOTHING
RETURNING (SELECT pruned_through FROM "idem_handlers" WHERE id = ?1)"#;

pub(super) const EXISTING_CLAIM: &str = r#"
SELECT fingerprint, {now} - processed_at AS age FROM "idem_processed_messages" WHERE handler_id = ?1 AND key = ?2"#;

/// SQLite does not record which transaction has changed a row, and needs no such check: the commit hook refuses each
/// COMMIT that a handler awaits, so a claim is reopened only if the handler has not awaited one, or has removed the
/// hook. The answer can then be lost only if the disk fails at this very COMMIT, since the database is in this process.
pub(super) const REOPEN: &str = r#"
UPDATE "idem_processed_messages" SET processed_at = NULL
WHERE handler_id = ?1 AND key = ?2 AND processed_at IS NOT NULL"#;

pub(super) const INTERN: &str = r#"
INSERT INTO "idem_handlers" (id, consumer, name, retention) VALUES (?4, ?1, ?2, ?3) ON CONFLICT DO NOTHING"#;

/// The greater value wins. Null means forever, so it is never replaced.
pub(super) const KEEP: &str = r#"
UPDATE "idem_handlers" SET retention = ?2 WHERE id = ?1 AND retention < ?2"#;

pub(super) const RETENTION: &str = r#"SELECT retention FROM "idem_handlers" WHERE id = ?1"#;

/// A former name comes behind the same name of another handler.
pub(super) const NUMBER: &str = r#"
SELECT id FROM "idem_handlers" WHERE consumer = ?1 AND name = ?2
UNION ALL
SELECT h.id FROM "idem_handlers" AS h JOIN "idem_former_names" AS f ON f.handler_id = h.id
WHERE h.consumer = ?1 AND f.name = ?2
LIMIT 1"#;

pub(super) const RENAME: &str = r#"UPDATE "idem_handlers" SET name = ?2 WHERE id = ?1"#;

pub(super) const KEEP_NAME: &str = r#"
INSERT INTO "idem_former_names" (handler_id, name) SELECT id, name FROM "idem_handlers" WHERE id = ?1
ON CONFLICT DO NOTHING"#;

pub(super) const ADD_FORMER_NAME: &str = r#"
INSERT INTO "idem_former_names" (handler_id, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING"#;

/// Deletes a handler to which nothing belongs.
pub(super) const FORGET: &str = r#"
DELETE FROM "idem_handlers" AS h WHERE id = ?1 AND pruned_through IS NULL
    AND NOT EXISTS (SELECT 1 FROM "idem_processed_messages" AS p WHERE p.handler_id = h.id)
    AND NOT EXISTS (SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = h.id)"#;

pub(super) const STALE: &str = r#"
SELECT coalesce(sum(seen_at < {now} - 30000), 0), count(*) = (SELECT count(DISTINCT value) FROM json_each(?1))
FROM "idem_handlers" WHERE id IN (SELECT value FROM json_each(?1))"#;

pub(super) const SEEN: &str = r#"
UPDATE "idem_handlers" SET seen_at = {now}
WHERE id IN (SELECT value FROM json_each(?1)) AND seen_at < {now} - 30000"#;

pub(super) const WAITING: &str = r#"
SELECT name, {now} - seen_at, {former_names} FROM "idem_handlers" AS h
WHERE consumer = ?1 AND EXISTS (SELECT 1 FROM "idem_inbox_messages" WHERE handler_id = h.id)
ORDER BY name"#;

/// A date that is before every message shows that the handler has processed messages, and makes none of them too old.
pub(super) const RECORD_HISTORY: &str = r#"
UPDATE "idem_handlers" SET pruned_through = 0 WHERE id = ?1 AND pruned_through IS NULL"#;

/// `pruned_through` shows that a claim existed even if all claims were pruned, or that messages were processed without
/// claims.
pub(super) const HISTORIES: &str = r#"
SELECT name, seen, has_claims, former_names FROM (
    SELECT name, pruned_through, {now} - seen_at AS seen, {former_names} AS former_names,
        EXISTS (SELECT 1 FROM "idem_processed_messages" WHERE handler_id = h.id) AS has_claims
    FROM "idem_handlers" AS h WHERE consumer = ?1
) WHERE has_claims OR pruned_through IS NOT NULL
ORDER BY name"#;
