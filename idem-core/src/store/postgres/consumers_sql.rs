//! The statements of consumers: of their handlers, and of operators.

use crate::Reason;
use crate::store::HandlerMark;

use super::rows::COLUMNS;

/// Leaves out the names that have a number, and those whose number another name has. The INSERT itself names no columns of the
/// conflict: of two workers that register a name at once, one would fail at the other index. The two that insert nothing name
/// them, so the statement fails while a restore has not made the indexes yet, which a second row of a handler would prevent.
pub(super) const INTERN: &str = "
    WITH by_id AS (
        INSERT INTO {schema}.handlers (consumer, name) SELECT '', '' WHERE false ON CONFLICT (id) DO NOTHING
    ), by_name AS (
        INSERT INTO {schema}.handlers (consumer, name) SELECT '', '' WHERE false ON CONFLICT (consumer, name) DO NOTHING
    )
    INSERT INTO {schema}.handlers (id, consumer, name, retention) OVERRIDING SYSTEM VALUE
    SELECT new.id, $1, new.name, $3::float8 * interval '1 second' FROM unnest($2::text[], $4::int[]) AS new (name, id)
    WHERE NOT EXISTS (SELECT FROM {schema}.handlers AS h WHERE h.consumer = $1 AND h.name = new.name)
      AND NOT EXISTS (SELECT FROM {schema}.handlers AS h JOIN {schema}.former_names AS f ON f.handler_id = h.id
                      WHERE h.consumer = $1 AND f.name = new.name)
    ORDER BY new.name
    ON CONFLICT DO NOTHING";

/// The greater value wins. Null means forever, so it is never replaced. Rows are locked in the order of their ids, as
/// prune locks them.
pub(super) const KEEP: &str = "
    WITH shorter AS MATERIALIZED (
        SELECT id FROM {schema}.handlers
        WHERE id = ANY($1) AND retention < $2::float8 * interval '1 second' ORDER BY id FOR UPDATE
    )
    UPDATE {schema}.handlers AS h SET retention = greatest(h.retention, $2::float8 * interval '1 second')
    FROM shorter WHERE h.id = shorter.id";

/// Changes what a mark changes, and returns how many of the handlers there are.
pub(super) fn mark(mark: HandlerMark) -> String {
    let change = match mark {
        HandlerMark::Seen => SEEN,
        HandlerMark::Processes => PROCESSES,
        HandlerMark::Calls => CALLS,
    };
    format!("WITH {change} SELECT count(*) FROM {{schema}}.handlers WHERE id = ANY($1)")
}

/// Waits for no lock, so that workers and prune never block each other, and writes a row at most twice a minute,
/// regardless of how many workers have the handler: each claim reads the row.
const SEEN: &str = "
    stale AS MATERIALIZED (
        SELECT id FROM {schema}.handlers
        WHERE id = ANY($1) AND seen_at < now() - interval '30 seconds' FOR NO KEY UPDATE SKIP LOCKED
    ), seen AS (
        UPDATE {schema}.handlers AS h SET seen_at = now() FROM stale WHERE h.id = stale.id
    )";

/// A date that is before every message shows that the handler has processed messages, and makes none of them too old.
const PROCESSES: &str = "
    processes AS (
        UPDATE {schema}.handlers SET pruned_through = 'epoch' WHERE id = ANY($1) AND pruned_through IS NULL
    )";

/// The namespace is the default of its column, a random value. Sorted, so that two workers that start cannot deadlock.
const CALLS: &str = "
    calls AS (
        INSERT INTO {schema}.call_namespaces (handler_id) SELECT id FROM {schema}.handlers WHERE id = ANY($1)
        ORDER BY id ON CONFLICT DO NOTHING
    )";

/// `pruned_through` shows that a claim existed even if all claims were pruned, or that messages were processed without
/// claims.
///
/// The order makes it read the index, once for each handler. For an EXISTS, PostgreSQL reads the table until it finds a row of
/// the handler, and so the whole table for one that has none.
pub(super) const KNOWN: &str = "
    SELECT id, consumer, name, ARRAY(SELECT f.name FROM {schema}.former_names AS f WHERE f.handler_id = h.id),
           (extract(epoch FROM now() - seen_at) * 1000000)::bigint, (extract(epoch FROM retention) * 1000000)::bigint,
           claim.key IS NOT NULL, claim.key IS NOT NULL OR pruned_through IS NOT NULL, inbox.key IS NOT NULL,
           (SELECT c.namespace FROM {schema}.call_namespaces AS c WHERE c.handler_id = h.id)
    FROM {schema}.handlers AS h
        LEFT JOIN LATERAL (
            SELECT p.key FROM {schema}.processed_messages AS p WHERE p.handler_id = h.id ORDER BY p.key LIMIT 1
        ) AS claim ON true
        LEFT JOIN LATERAL (
            SELECT i.key FROM {schema}.inbox_messages AS i WHERE i.handler_id = h.id ORDER BY i.key LIMIT 1
        ) AS inbox ON true
    WHERE consumer = coalesce($1, consumer)
    ORDER BY consumer, name";

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
