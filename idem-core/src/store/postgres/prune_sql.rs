//! The statements that delete old claims.

/// Allows one pruner per schema at a time, until the end of the chunk's transaction. With a pooler, the next chunk may
/// run in another session.
pub(super) const LOCK: &str = "SELECT pg_try_advisory_xact_lock(hashtextextended('idem prune ' || $1, 0))";

/// Handler by handler, so that the index returns the oldest claims of each without reading those that another one
/// keeps. Locks the claims first. A transaction that is about to write a conflict beside a claim holds the claim FOR
/// KEY SHARE, so prune skips it.
pub(super) const FIND: &str = "
    SELECT old.place FROM {schema}.handlers AS h, LATERAL (
        SELECT claim.ctid::text AS place FROM {schema}.processed_messages AS claim
        WHERE claim.handler_id = h.id AND claim.processed_at < now() - h.retention
          AND NOT EXISTS (SELECT FROM {schema}.inbox_messages AS i
                          WHERE i.handler_id = claim.handler_id AND i.key = claim.key)
        ORDER BY claim.processed_at LIMIT $1 FOR UPDATE OF claim SKIP LOCKED
    ) AS old LIMIT $1";

/// A separate statement, so that it sees an inbox row that was committed before the claim could be locked. A row's ctid
/// cannot change while it is locked.
pub(super) const DELETE: &str = "
    WITH gone AS (
        DELETE FROM {schema}.processed_messages AS claim
        WHERE ctid = ANY($1::text[]::tid[]) AND processed_at IS NOT NULL
          AND NOT EXISTS (SELECT FROM {schema}.inbox_messages AS i
                          WHERE i.handler_id = claim.handler_id AND i.key = claim.key)
        RETURNING handler_id, processed_at
    ), latest AS (
        SELECT handler_id, max(processed_at) AS processed_at FROM gone GROUP BY handler_id
    ), locked AS MATERIALIZED (
        SELECT h.id FROM {schema}.handlers AS h WHERE h.id IN (SELECT handler_id FROM latest) ORDER BY h.id FOR UPDATE
    ), through AS (
        UPDATE {schema}.handlers AS h SET pruned_through = greatest(h.pruned_through, latest.processed_at)
        FROM latest, locked WHERE h.id = latest.handler_id AND h.id = locked.id
    )
    SELECT count(*) FROM gone";
