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

/// One statement for every result: $3 attempts to add, $4 the answer, $5 seconds until due, $6 the reason if dead, $7 the
/// error, $8 whether no call can have had an effect, $9 whether the lease is left to end, $10 whether a question has failed. The
/// first one begins the attempts anew. A row that is only given back keeps the earlier starts: they may have ended processes.
///
/// An answer is kept also if the lease has ended meanwhile, as in an outage: it is that of the key $11, which the row has until
/// a person has said that no call under it had an effect.
pub(super) const RECORD: &str = "
    UPDATE {schema}.inbox_messages SET
        locked_by = NULL,
        locked_until = NULL,
        crash_count = CASE WHEN $4::bytea IS NULL AND $3 = 0 AND $6 IS NULL THEN greatest(crash_count - 1, 0) ELSE 0 END,
        attempts = CASE WHEN $4 IS NOT NULL THEN 0 WHEN $10 AND asked_at IS NULL THEN $3 ELSE attempts + $3 END,
        asked_at = CASE WHEN $10 THEN coalesce(asked_at, now()) ELSE asked_at END,
        answer = $4,
        called_at = CASE WHEN NOT $8 THEN called_at END,
        called_by = CASE WHEN NOT $8 THEN called_by END,
        call_name = CASE WHEN NOT $8 THEN call_name END,
        run_at = greatest(CASE WHEN $9 THEN locked_until END, now() + $5::float8 * interval '1 second'),
        reason = $6::text,
        state = CASE WHEN $6 IS NOT NULL THEN 'dead' WHEN $4 IS NOT NULL THEN 'scheduled' ELSE 'calling' END,
        died_at = CASE WHEN $6 IS NOT NULL THEN now() END,
        error = coalesce(pg_catalog.convert_from($7, 'UTF8'), error)
    WHERE id = $1 AND state IN ('calling', 'dead') AND answer IS NULL
      AND (locked_by = $2 OR $4 IS NOT NULL AND provider_key = $11)
    RETURNING 1";

pub(super) const DATE: &str = "
    UPDATE {schema}.inbox_messages
    SET called_at = now(), called_by = locked_by, asked_at = NULL, locked_until = now() + $3::float8 * interval '1 second'
    WHERE id = $1 AND locked_by = $2 AND state = 'calling' RETURNING 1";

pub(super) const LEAVE_TO_CALL: &str = "
    UPDATE {schema}.inbox_messages SET locked_by = NULL, locked_until = NULL, state = 'calling', crash_count = 0,
        lost_connections = 0, run_at = now(),
        provider_key = coalesce(provider_key, $3)
    WHERE id = $1 AND locked_by = $2 RETURNING 1";

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

/// $3: the answer; null: another call, which needs another key, and waits until no request of the last one can be on its way.
/// A row that has an answer is not called for again. $4: the key that the person has looked for; $5: the one that follows it.
pub(super) const RESOLVE: &str = "
    UPDATE {schema}.inbox_messages AS i SET
        state = CASE WHEN $3::bytea IS NULL THEN 'calling' ELSE 'scheduled' END,
        reason = NULL, died_at = NULL, locked_by = NULL, locked_until = NULL, crash_count = 0, attempts = 0,
        lost_connections = 0,
        run_at = CASE WHEN $3::bytea IS NULL THEN greatest(i.locked_until, i.run_at, now()) ELSE now() END,
        answer = $3,
        provider_key = CASE WHEN $3 IS NULL THEN $5 ELSE i.provider_key END,
        called_at = CASE WHEN $3 IS NOT NULL THEN i.called_at END,
        called_by = CASE WHEN $3 IS NOT NULL THEN i.called_by END,
        call_name = NULL,
        asked_at = CASE WHEN $3 IS NOT NULL THEN i.asked_at END
    FROM {schema}.handlers AS h
    WHERE i.id = $2 AND h.id = i.handler_id AND h.consumer = $1 AND i.state = 'dead' AND i.provider_key = $4
      AND ($3 IS NOT NULL OR i.answer IS NULL)
    RETURNING 1";
