//! The statements of claims.

/// Never `INSERT OR IGNORE`: it treats any constraint violation as a duplicate. Also returns how far claims were
/// pruned.
pub(super) const CLAIM: &str = r#"
INSERT INTO "idem_processed_messages" (handler_id, key, fingerprint, processed_at)
SELECT ?1, ?2, ?3, CASE WHEN ?4 THEN {now} END
WHERE NOT EXISTS (SELECT 1 FROM "idem_processed_messages" WHERE handler_id = ?1 AND key = ?2)
ON CONFLICT DO NOTHING
RETURNING (SELECT pruned_through FROM "idem_handlers" WHERE id = ?1)"#;

/// BEGIN, the claim and the guard's savepoint, whether or not the claim is new. Without quotes, the savepoint has the same name
/// whatever the prefix of the tables.
pub(super) fn begin_with_claim() -> String {
    format!("BEGIN IMMEDIATE; {CLAIM}; SAVEPOINT idem_guard")
}

pub(super) const EXISTING_CLAIM: &str = r#"
SELECT fingerprint, {now} - processed_at AS age FROM "idem_processed_messages" WHERE handler_id = ?1 AND key = ?2"#;

/// SQLite does not record which transaction has changed a row, and needs no such check: the commit hook refuses each
/// COMMIT that a handler awaits, so a claim is reopened only if the handler has not awaited one, or has removed the
/// hook. The answer can then be lost only if the disk fails at this very COMMIT, since the database is in this process.
pub(super) const REOPEN: &str = r#"
UPDATE "idem_processed_messages" SET processed_at = NULL
WHERE handler_id = ?1 AND key = ?2 AND processed_at IS NOT NULL"#;
