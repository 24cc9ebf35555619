//! The statements of operators.

use crate::Reason;

use super::rows::COLUMNS;

pub(super) const STATS: &str = "
    SELECT count(*) FILTER (WHERE state <> 'dead'), count(*) FILTER (WHERE state = 'dead'),
           (extract(epoch FROM now() - min(coalesce(locked_until, run_at)) FILTER (
               WHERE state <> 'dead' AND coalesce(locked_until, run_at) <= now())) * 1000000)::bigint
    FROM {schema}.inbox_messages WHERE handler_id = ANY($1)";

/// The condition is in the text, so that the planner can use the index of dead rows.
pub(super) fn list(which: &str) -> String {
    format!(
        "SELECT {COLUMNS} FROM {{schema}}.inbox_messages AS i JOIN {{schema}}.handlers AS h ON h.id = i.handler_id
        WHERE h.consumer = $1 AND i.{which} AND i.id < coalesce($2, 9223372036854775807)
          AND ($3::text IS NULL OR h.name = $3 OR EXISTS (
              SELECT FROM {{schema}}.former_names AS f WHERE f.handler_id = h.id AND f.name = $3)) AND ($4::text IS NULL OR i.reason = $4)
          AND ($6::bytea[] IS NULL OR i.key = ANY($6))
        ORDER BY i.id DESC LIMIT $5"
    )
}

pub(super) const CONSUMERS: &str = "SELECT DISTINCT consumer FROM {schema}.handlers ORDER BY consumer";

/// A row whose external call may have begun, and that has no answer. It goes back to its call phase, with the key and the time of
/// its first call. One that was never called becomes an ordinary row, for a version with the call as for one without.
const CALLS: &str = "i.called_at IS NOT NULL AND i.answer IS NULL";

/// A row that ended a process or a connection runs as a suspect again: breaks is set to 2 to mark it, because starts is
/// reset to 0. Earlier breaks are cleared. A call in doubt keeps the end of its lease, because its request may still be on its
/// way.
pub(super) fn replay() -> String {
    format!(
        "WITH found AS MATERIALIZED (
            SELECT i.id, i.reason FROM {{schema}}.inbox_messages AS i
            JOIN {{schema}}.handlers AS h ON h.id = i.handler_id
            WHERE i.id = $2 AND h.consumer = $1 AND i.state = 'dead' FOR UPDATE OF i
        ), done AS (
            UPDATE {{schema}}.inbox_messages AS i
            SET state = CASE WHEN {CALLS} THEN 'calling' ELSE 'scheduled' END,
                died_at = NULL, reason = NULL, locked_by = NULL, locked_until = NULL, crash_count = 0,
                attempts = 0, asked_at = NULL,
                run_at = CASE WHEN {CALLS} THEN greatest(i.locked_until, i.run_at, now()) ELSE now() END,
                lost_connections = CASE WHEN NOT ({CALLS}) AND found.reason IN ('{}', '{}') THEN 2 ELSE 0 END
            FROM found WHERE i.id = found.id AND found.reason NOT IN ('{}', '{}') AND ($3 OR found.reason NOT IN ('{}', '{}'))
        )
        SELECT reason FROM found",
        Reason::Crashed,
        Reason::BrokeConnection,
        Reason::Conflict,
        Reason::Unresolved,
        Reason::Committed,
        Reason::TooOld,
    )
}

pub(super) fn replay_as() -> String {
    format!(
        "WITH found AS MATERIALIZED (
            SELECT i.id, i.handler_id, i.fingerprint FROM {{schema}}.inbox_messages AS i
            JOIN {{schema}}.handlers AS h ON h.id = i.handler_id
            WHERE i.id = $2 AND h.consumer = $1 AND i.state = 'dead' AND i.reason = '{}' FOR UPDATE OF i
        ), claimed AS (
            INSERT INTO {{schema}}.processed_messages (handler_id, key, fingerprint)
            SELECT handler_id, $3, fingerprint FROM found
            WHERE NOT EXISTS (SELECT FROM {{schema}}.processed_messages AS claim
                              WHERE claim.handler_id = found.handler_id AND claim.key = $3)
            ON CONFLICT (handler_id, key) DO NOTHING RETURNING 1
        ), moved AS (
            UPDATE {{schema}}.inbox_messages AS i
            SET key = $3, state = 'scheduled', run_at = now(), died_at = NULL, reason = NULL, locked_by = NULL,
                locked_until = NULL, crash_count = 0, lost_connections = 0
            FROM found, claimed WHERE i.id = found.id RETURNING 1
        )
        SELECT EXISTS (SELECT FROM moved) FROM found",
        Reason::Conflict
    )
}

/// The claim is dated only if the deleted row owned it. A conflict does not: the claim of its key belongs to another
/// message. A row without a key finds no claim, since no claim has an empty key. The third
/// parameter: the key of the call that an operator resolves. Without one, a row whose call may have begun stays, whatever made
/// it dead: its key is all by which anybody finds the effect.
pub(super) fn discard() -> String {
    format!(
        "WITH gone AS (
            DELETE FROM {{schema}}.inbox_messages AS i USING {{schema}}.handlers AS h
            WHERE i.id = $2 AND h.id = i.handler_id AND h.consumer = $1 AND i.state = 'dead'
              AND CASE WHEN $3::uuid IS NOT NULL THEN i.provider_key = $3 ELSE i.called_at IS NULL AND i.answer IS NULL END
            RETURNING i.handler_id, i.key, i.reason
        ), dated AS (
            UPDATE {{schema}}.processed_messages AS claim SET processed_at = now() FROM gone
            WHERE claim.handler_id = gone.handler_id AND claim.key = gone.key AND claim.processed_at IS NULL
              AND gone.reason <> '{}'
        )
        SELECT FROM gone",
        Reason::Conflict
    )
}
