//! The statements that delete old claims.

/// Forbids plans that read all inbox rows for each claim: one that was made while the inbox was empty is kept. The blocks
/// of a step must not be searched for in the whole table either. A plan that has no choice but a forbidden one costs 10^10 by its
/// estimate, and one that looks at each claim costs much too: for both, the server would compile the statement anew in each
/// step, which takes longer than the step (PostgreSQL manual, 32.2).
pub(super) const PLANNER: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_tidscan = on; SET LOCAL jit = off";

/// Whether this is the only pruner of the schema $1 until the end of the step's transaction (with a pooler, the next step may run in
/// another session), the number of blocks of the claims, the block at which the walk continues, how many seconds it is behind,
/// the shortest retention in seconds, if any claims are pruned, and the clock.
pub(super) const PLACE: &str = "
    SELECT pg_try_advisory_xact_lock(hashtextextended('idem prune ' || $1::text, 0)),
           pg_relation_size(format('%I.processed_messages', $1::text)::regclass) / current_setting('block_size')::bigint,
           coalesce(max(block), 0), coalesce(extract(epoch FROM now() - max(caught_up_to)), 0)::float8,
           (SELECT extract(epoch FROM min(retention))::float8 FROM {schema}.handlers), extract(epoch FROM now())::float8
    FROM {schema}.pruner";

/// Finds the old claims from block $1 to before block $2, and locks them. The clock is $3 seconds ahead. A transaction that is about to write a conflict
/// beside a claim holds the claim FOR KEY SHARE, so prune skips it.
///
/// The blocks are the only condition by which the planner can choose rows (TID range scan, PostgreSQL 14): the retention
/// is a subquery because a join could be planned by handler, and OFFSET keeps the last condition from becoming a join,
/// which could read all inbox rows. CASE asks for inbox rows only where the claim is old.
pub(super) const FIND: &str = "
    SELECT claim.ctid::text FROM {schema}.processed_messages AS claim
    WHERE claim.ctid >= format('(%s,0)', $1::bigint)::tid AND claim.ctid < format('(%s,0)', $2::bigint)::tid
      AND CASE
          WHEN claim.processed_at < now() - make_interval(secs => $3)
               - (SELECT h.retention FROM {schema}.handlers AS h WHERE h.id = claim.handler_id)
          THEN NOT EXISTS (SELECT FROM {schema}.inbox_messages AS i
                           WHERE i.handler_id = claim.handler_id AND i.key = claim.key OFFSET 0)
          ELSE false END
    FOR UPDATE OF claim SKIP LOCKED";

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

/// Records the block $1 at which the walk continues, and that it has caught up $2 seconds.
pub(super) const MOVE: &str = "
    INSERT INTO {schema}.pruner AS p (id, block) VALUES (1, $1)
    ON CONFLICT (id) DO UPDATE
        SET block = excluded.block, caught_up_to = least(now(), p.caught_up_to + make_interval(secs => $2))";
