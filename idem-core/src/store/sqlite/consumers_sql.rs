//! The statements of consumers: of their handlers, and of operators.

use crate::store::sql::statements::{DEAD, IS_DISCARDED, IS_REPLAYED, IS_RESOLVED, OPERATIONS, REPLAYED, RESOLVED};

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
     WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'dead'),
    {now} - min(due)
FROM (
    SELECT count(*) AS scheduled, min({due}) FILTER (WHERE {due} <= {now}) AS due
    FROM "idem_inbox_messages" WHERE handler_id IN (SELECT value FROM json_each(?1)) AND {ordinary}
    UNION ALL SELECT count(*), min({due}) FILTER (WHERE {due} <= {now})
    FROM "idem_inbox_messages" WHERE handler_id IN (SELECT value FROM json_each(?1)) AND {orphan}
    UNION ALL SELECT count(*), min({due}) FILTER (WHERE {due} <= {now})
    FROM "idem_inbox_messages" WHERE handler_id IN (SELECT value FROM json_each(?1)) AND state = 'calling'
)"#;

pub(super) const ROWS: &str =
    r#"SELECT {row} FROM "idem_inbox_messages" WHERE id IN (SELECT value FROM json_each(?1))"#;

/// The dead rows that an operator names, those of them which his statement may change. Each statement of an operator has the values of
/// [`statements`](crate::store::sql::statements); $1 are the ids.
fn named(may: &str) -> String {
    format!("i.id IN (SELECT value FROM json_each($1)) AND {DEAD} AND ({may})")
}

/// Notes the rows that the transaction is about to change.
fn note(may: &str) -> String {
    let rows = named(may);
    format!(
        r#"
INSERT INTO {OPERATIONS} SELECT $3, $4, $5, i.handler_id, i.id, i.key, i.reason, i.attempts, i.error
FROM "idem_inbox_messages" AS i WHERE {rows} ORDER BY i.id"#
    )
}

/// Changes rows, and returns their ids.
fn update(may: &str, set: &str) -> String {
    format!(r#"UPDATE "idem_inbox_messages" AS i SET {set} WHERE {} RETURNING id"#, named(may))
}

/// The fingerprint of a row that loses its key is only unique, so that the index of keys refuses none.
pub(super) fn replay() -> [String; 2] {
    let keys = "key = CASE WHEN i.reason = 'conflict' THEN x'' ELSE i.key END,
        fingerprint = CASE WHEN i.reason = 'conflict' THEN randomblob(16) ELSE i.fingerprint END";
    [note(IS_REPLAYED), update(IS_REPLAYED, &format!("{REPLAYED}, {keys}"))]
}

/// A conflict, which can be replayed under another key.
const IS_CONFLICT: &str = "i.reason = 'conflict'";

/// Claims the key $6 for a conflict, before [`replay_as`].
pub(super) fn claim() -> String {
    format!(
        r#"
INSERT INTO "idem_processed_messages" (handler_id, key, fingerprint) SELECT i.handler_id, $6, i.fingerprint
FROM "idem_inbox_messages" AS i WHERE {} ON CONFLICT DO NOTHING"#,
        named(IS_CONFLICT)
    )
}

pub(super) fn replay_as() -> [String; 2] {
    [note(IS_CONFLICT), update(IS_CONFLICT, &format!("{REPLAYED}, key = $6"))]
}

/// The rows that a replay has left as they are.
pub(super) fn left() -> String {
    format!(r#"SELECT i.id, i.reason FROM "idem_inbox_messages" AS i WHERE {}"#, named("true"))
}

pub(super) fn resolve() -> [String; 2] {
    [note(IS_RESOLVED), update(IS_RESOLVED, RESOLVED)]
}

/// Dates the claims that the rows own, before it deletes these. A conflict owns none: the claim of its key belongs to another
/// message. A row without a key finds none, since no claim has an empty key.
pub(super) fn discard() -> [String; 3] {
    let rows = named(IS_DISCARDED);
    let date = format!(
        r#"
UPDATE "idem_processed_messages" AS c SET processed_at = {{now}} FROM "idem_inbox_messages" AS i
WHERE {rows} AND i.reason <> 'conflict' AND c.handler_id = i.handler_id AND c.key = i.key AND c.processed_at IS NULL"#
    );
    let delete = format!(r#"DELETE FROM "idem_inbox_messages" AS i WHERE {rows} RETURNING id"#);
    [note(IS_DISCARDED), date, delete]
}
