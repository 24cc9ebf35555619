//! The statements of external calls.

use super::inbox_sql::DUE;
use super::rows::COLUMNS;

/// The predicate of the index of rows in their call phase.
pub(super) const CALLING: &str = "i.state = 'calling'";

/// As the take of ordinary rows, handler by handler. $1, $4 and $5: the handlers, their leases in seconds, and the names of their
/// calls; $2 the limit, $3 the token, $6 how many seconds the search goes back. The time of the first call is written before the
/// call.
pub(super) fn take() -> String {
    format!(
        "WITH due AS MATERIALIZED (
            SELECT found.id, found.due, found.lease, found.name
            FROM unnest($1::int[], $4::float8[], $5::text[]) AS handler (id, lease, name), LATERAL (
                SELECT i.id, {DUE} AS due, handler.lease, handler.name FROM {{schema}}.inbox_messages AS i
                WHERE i.handler_id = handler.id AND {CALLING} AND {DUE} <= now()
                  AND {DUE} >= now() - $6::float8 * interval '1 second'
                ORDER BY {DUE} LIMIT $2 FOR UPDATE SKIP LOCKED
            ) AS found ORDER BY found.due LIMIT $2
        )
        UPDATE {{schema}}.inbox_messages AS i
        SET crash_count = i.crash_count + 1, locked_by = $3, locked_until = now() + due.lease * interval '1 second',
            provider_key = coalesce(i.provider_key, pg_catalog.gen_random_uuid()), called_at = coalesce(i.called_at, now()),
            called_by = CASE WHEN i.called_at IS NULL THEN $3 ELSE i.called_by END,
            call_name = CASE WHEN i.called_at IS NULL THEN due.name ELSE i.call_name END
        FROM due, {{schema}}.handlers AS h
        WHERE i.id = due.id AND h.id = i.handler_id
        RETURNING {COLUMNS}, (extract(epoch FROM clock_timestamp() - due.due) * 1000000)::bigint AS waited"
    )
}

/// $1: the handlers, $2 how many rows to release.
pub(super) fn release() -> String {
    format!(
        "WITH found AS MATERIALIZED (
            SELECT i.id FROM {{schema}}.inbox_messages AS i
            WHERE i.handler_id = ANY($1) AND {CALLING} AND i.called_at IS NULL LIMIT $2 FOR UPDATE SKIP LOCKED
        ), released AS (
            UPDATE {{schema}}.inbox_messages AS i SET state = 'scheduled', crash_count = 0
            FROM found WHERE i.id = found.id RETURNING 1
        )
        SELECT (SELECT count(*) FROM released), (
            SELECT count(*) FROM {{schema}}.inbox_messages AS i
            WHERE i.handler_id = ANY($1) AND {CALLING} AND i.called_at IS NOT NULL
        )"
    )
}
