//! The statements of inbox rows.

use crate::Reason;
use crate::store::sql::statements;
use crate::store::{self, CRASHED_AT_ONCE, MAX_STARTS, RowKind};

use super::rows::COLUMNS;

/// Deletes the rows $1 with the tokens $2, and dates their claims if $4 is true. Deleting a row locks it, so that other fetches
/// skip it while the handler runs. Of several, one claim records that only idem commits this transaction. $3: the lock timeout of
/// what follows.
pub(super) const START: &str = "
    WITH gone AS (
        DELETE FROM {schema}.inbox_messages AS i USING unnest($1::bigint[], $2::uuid[]) AS ours (id, locked_by)
        WHERE i.id = ours.id AND i.locked_by = ours.locked_by RETURNING i.id, i.handler_id, i.key
    ), dated AS (
        UPDATE {schema}.processed_messages AS claim
        SET processed_at = now(),
            batch_xid = CASE WHEN cardinality($1) > 1 AND gone.id = (SELECT min(id) FROM gone) THEN pg_current_xact_id() END
        FROM gone
        WHERE $4::boolean AND claim.handler_id = gone.handler_id AND claim.key = gone.key
    )
    SELECT array_agg(id), pg_current_xact_id()::text, set_config('lock_timeout', $3, true)
    FROM gone HAVING count(*) > 0";

/// The predicate of the index of ordinary rows. The planner uses the index only for a statement that repeats it.
const ORDINARY: &str = "i.state IN ('scheduled', 'running') AND i.crash_count = 0 AND i.lost_connections <= 1";
/// The predicate of the index of rows that may have ended a process or a connection.
const STARTED: &str = "i.state IN ('scheduled', 'running') AND (i.crash_count >= 1 OR i.lost_connections >= 2)";
/// The same, without those beside which no other row may run.
const ORPHAN: &str =
    "i.state IN ('scheduled', 'running') AND (i.crash_count >= 1 OR i.lost_connections >= 2) AND i.crash_count <= 1";
/// The same for those beside which nothing may run, without the rows that are to be dead-lettered as crashed.
const ALONE: &str = "i.state IN ('scheduled', 'running') AND (i.crash_count >= 1 OR i.lost_connections >= 2) AND i.crash_count IN (2, 3)";
const CRASHED: &str =
    "i.state IN ('scheduled', 'running') AND (i.crash_count >= 1 OR i.lost_connections >= 2) AND i.crash_count >= 4";
const _: () = assert!(MAX_STARTS == 4);
/// The predicate of the index of rows in their call phase.
const CALLING: &str = "i.state = 'calling'";

/// When a worker may have the row: the column of the indexes. That of a row that another one has locked is the end of its lease.
const DUE: &str = "coalesce(i.locked_until, i.run_at)";

/// Rows are inserted in this order, so that two transactions cannot deadlock.
pub(super) const INSERT: &str = "
    INSERT INTO {schema}.inbox_messages AS i
        (handler_id, key, fingerprint, payload, envelope, attempts, state, run_at, reason, died_at, error,
         provider_key, answer, call_name, called_at)
    SELECT new.handler_id, new.key, new.fingerprint, new.payload,
           pg_catalog.convert_from(new.envelope, 'UTF8')::pg_catalog.json, new.attempts,
           CASE WHEN new.reason IS NOT NULL THEN 'dead' WHEN new.calls THEN 'calling' ELSE 'scheduled' END,
           now() + new.due * interval '1 second',
           new.reason, CASE WHEN new.reason IS NOT NULL THEN now() END, pg_catalog.convert_from(new.error, 'UTF8'),
           new.provider_key, new.answer, new.call_name, timestamptz 'epoch' + new.called_at * interval '1 microsecond'
    FROM unnest($1::int[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::int[], $7::float8[], $8::text[],
                $9::bytea[], $10::boolean[], $11::uuid[], $12::bytea[], $13::text[], $14::bigint[])
        AS new (handler_id, key, fingerprint, payload, envelope, attempts, due, reason, error, calls, provider_key, answer,
                call_name, called_at)
    ORDER BY new.handler_id, new.key, new.fingerprint
    ON CONFLICT (handler_id, key, fingerprint) DO UPDATE SET deliveries = i.deliveries + 1
    RETURNING id, handler_id, key, fingerprint";

pub(super) const EXTEND: &str = "
    WITH held AS MATERIALIZED (
        SELECT id FROM {schema}.inbox_messages WHERE id = ANY($1) AND locked_by = $2 FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.inbox_messages AS i SET locked_until = now() + $3::float8 * interval '1 second'
    FROM held WHERE i.id = held.id";

/// Handler by handler, so that the index returns the oldest rows of each without reading those of others. The rows are
/// locked while they are searched: running rows are skipped and do not count against the limit. Materialized, since a
/// limit that is evaluated again for each joined row takes more rows than it allows. The lengths of payloads are known
/// without reading them (octet_length of a value that is stored out of line reads its pointer).
///
/// $1, $4 and $7: the handlers, their leases in seconds, and the names of their calls; $2 the limit, $3 the token, $5 the limit of
/// bytes. $6 bounds how many seconds the search goes back: under an old snapshot the index keeps an entry for each row that was
/// fetched since, and a search from the oldest entry steps over all of them.
pub(super) fn fetch(kind: RowKind) -> String {
    let which = match kind {
        RowKind::Ordinary => ORDINARY,
        RowKind::Orphan => ORPHAN,
        RowKind::Alone => ALONE,
        RowKind::Calling => CALLING,
    };
    let fetched = statements::fetched(kind).replace("{now}", "now()");
    format!(
        "WITH due AS MATERIALIZED (
            SELECT found.* FROM unnest($1::int[], $4::float8[], $7::text[]) AS handler (id, lease, call), LATERAL (
                SELECT i.id, {DUE} AS due, handler.lease, handler.call,
                       octet_length(i.payload) + octet_length(i.envelope::text) AS bytes
                FROM {{schema}}.inbox_messages AS i
                WHERE i.handler_id = handler.id AND {which} AND {DUE} <= now()
                  AND {DUE} >= now() - $6::float8 * interval '1 second'
                ORDER BY {DUE} LIMIT $2 FOR UPDATE SKIP LOCKED
            ) AS found ORDER BY found.due LIMIT $2
        ), fit AS MATERIALIZED (
            SELECT *, sum(bytes) OVER (ORDER BY due, id) - bytes AS before FROM due
        )
        UPDATE {{schema}}.inbox_messages AS i
        SET crash_count = i.crash_count + 1, locked_by = $3, locked_until = now() + due.lease * interval '1 second', {fetched}
        FROM fit AS due, {{schema}}.handlers AS h
        WHERE i.id = due.id AND h.id = i.handler_id AND due.before < $5
        RETURNING {COLUMNS}, (extract(epoch FROM clock_timestamp() - due.due) * 1000000)::bigint AS waited"
    )
}

/// A fetched row has a start, so it is in the small index of orphaned rows, or in that of calls.
pub(super) fn rows_by_token() -> String {
    let fetched = |which: &str| {
        format!(
            "SELECT {COLUMNS} FROM {{schema}}.inbox_messages AS i JOIN {{schema}}.handlers AS h ON h.id = i.handler_id
            WHERE {which} AND i.locked_by = $1"
        )
    };
    format!("{} UNION ALL {} ORDER BY id", fetched(STARTED), fetched(CALLING))
}

/// Fills in what the text of a [`Question`](crate::store::Question) says of a row `i`.
pub(super) fn filled(question: &str) -> String {
    question.replace("{ordinary}", ORDINARY).replace("{orphan}", STARTED).replace("{due}", DUE)
}

/// A running row looks due once its lease has expired, but is not pending work: it is locked, and skipped.
pub(super) fn poll_due() -> String {
    let back = |seconds: &str| format!("{DUE} >= now() - {seconds} * interval '1 second'");
    let any = |which: &str, due: &str, lock: &str| {
        format!(
            "EXISTS (SELECT FROM unnest($1::int[]) AS handler (id), LATERAL (
                SELECT i.id FROM {{schema}}.inbox_messages AS i
                WHERE i.handler_id = handler.id AND {which} AND {due} ORDER BY {DUE} LIMIT 1 {lock}) AS found)"
        )
    };
    format!(
        "SELECT {}, {}, {}, {}",
        any(ORDINARY, &format!("{DUE} <= now() AND {}", back("$3::float8")), ""),
        any(ORPHAN, &format!("{DUE} <= now() AND {}", back("$4::float8")), "FOR KEY SHARE SKIP LOCKED"),
        any(ALONE, &format!("{DUE} <= now() AND {}", back("$4::float8")), "FOR KEY SHARE SKIP LOCKED"),
        any(
            CRASHED,
            &format!("{DUE} < now() - $2::float8 * interval '1 second' AND {}", back("($2::float8 + $4::float8)")),
            "FOR KEY SHARE SKIP LOCKED"
        ),
    )
}

/// Makes rows ordinary whose handlers make no call. $1: the handlers, $2 how many rows to release.
pub(super) fn release_calls() -> String {
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

pub(super) fn dead_letter_crashed() -> String {
    format!(
        "WITH over AS MATERIALIZED (
            SELECT i.id FROM {{schema}}.inbox_messages AS i
            WHERE i.handler_id = ANY($1) AND {CRASHED} AND {DUE} < now() - $2::float8 * interval '1 second'
            LIMIT {CRASHED_AT_ONCE} FOR UPDATE SKIP LOCKED
        )
        UPDATE {{schema}}.inbox_messages AS i
        SET state = 'dead', reason = '{}', died_at = now(), locked_by = NULL, locked_until = NULL, error = '{}'
            || CASE WHEN i.error = '' THEN '' ELSE '; the error of its last attempt: ' || i.error END
        FROM over, {{schema}}.handlers AS h WHERE i.id = over.id AND h.id = i.handler_id RETURNING {COLUMNS}",
        Reason::Crashed,
        store::CRASHED
    )
}
