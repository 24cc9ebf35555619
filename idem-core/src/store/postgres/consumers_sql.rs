//! The statements of consumers: of their handlers, and of operators.

use crate::Reason;
use crate::store::HandlerMark;
use crate::store::sql::statements::{DEAD, IS_DISCARDED, IS_REPLAYED, IS_RESOLVED, OPERATIONS, REPLAYED, RESOLVED};

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

/// The rows with these ids, in this order.
pub(super) fn rows() -> String {
    format!(
        "SELECT {COLUMNS} FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (id, place)
        JOIN {{schema}}.inbox_messages AS i ON i.id = asked.id LEFT JOIN {{schema}}.handlers AS h ON h.id = i.handler_id
        ORDER BY asked.place"
    )
}

/// What an operator does with dead rows, noted in the same statement. Returns the rows that were found, with their reasons, and
/// whether they were changed.
///
/// `may` says which rows are changed; `done` changes those of `found`, and returns them as they were; `is_done` tells it of a
/// row of `found`. Rows are locked in the order of their ids, and left out if another operator has them, so no two wait for each other.
fn change(may: &str, done: &str, is_done: &str) -> String {
    format!(
        "WITH found AS MATERIALIZED (
            SELECT i.id, i.handler_id, i.key, i.fingerprint, i.reason, i.attempts, i.error, {may} AS may
            FROM {{schema}}.inbox_messages AS i WHERE i.id = ANY($1) AND {DEAD} ORDER BY i.id FOR UPDATE SKIP LOCKED
        ), {done}, noted AS (
            INSERT INTO {OPERATIONS}
            SELECT $3::uuid, $4::text, $5::text, handler_id, id, key, reason, attempts, error FROM done ORDER BY id
        )
        SELECT id, reason, {is_done} FROM found"
    )
}

/// The fingerprint of a row that loses its key is only unique, so that the index of keys refuses none.
pub(super) fn replay() -> String {
    let done = format!(
        "done AS (
            UPDATE {{schema}}.inbox_messages AS i SET {REPLAYED},
                key = CASE WHEN i.reason = '{conflict}' THEN '' ELSE i.key END,
                fingerprint = CASE WHEN i.reason = '{conflict}' THEN uuid_send(gen_random_uuid()) ELSE i.fingerprint END
            FROM found WHERE i.id = found.id AND found.may RETURNING found.*
        )",
        conflict = Reason::Conflict
    );
    change(&format!("({IS_REPLAYED})"), &done, "may")
}

/// $6: the new key.
pub(super) fn replay_as() -> String {
    let done = format!(
        "claimed AS (
            INSERT INTO {{schema}}.processed_messages (handler_id, key, fingerprint)
            SELECT handler_id, $6, fingerprint FROM found
            WHERE may AND NOT EXISTS (SELECT FROM {{schema}}.processed_messages AS claim
                                      WHERE claim.handler_id = found.handler_id AND claim.key = $6)
            ON CONFLICT (handler_id, key) DO NOTHING RETURNING 1
        ), done AS (
            UPDATE {{schema}}.inbox_messages AS i SET {REPLAYED}, key = $6
            FROM found, claimed WHERE i.id = found.id AND found.may RETURNING found.*
        )"
    );
    change(&format!("i.reason = '{}'", Reason::Conflict), &done, "EXISTS (SELECT FROM done)")
}

pub(super) fn resolve() -> String {
    let done = format!(
        "done AS (
            UPDATE {{schema}}.inbox_messages AS i SET {RESOLVED} FROM found WHERE i.id = found.id AND found.may RETURNING found.*
        )"
    );
    change(&format!("coalesce({IS_RESOLVED}, false)"), &done, "may")
}

/// The claim is dated only if the deleted row owned it. A conflict does not: the claim of its key belongs to another
/// message. A row without a key finds no claim, since no claim has an empty key.
pub(super) fn discard() -> String {
    let done = format!(
        "done AS (
            DELETE FROM {{schema}}.inbox_messages AS i USING found WHERE i.id = found.id AND found.may RETURNING found.*
        ), dated AS (
            UPDATE {{schema}}.processed_messages AS claim SET processed_at = now() FROM done
            WHERE claim.handler_id = done.handler_id AND claim.key = done.key AND claim.processed_at IS NULL
              AND done.reason <> '{}'
        )",
        Reason::Conflict
    );
    change(&format!("coalesce({IS_DISCARDED}, false)"), &done, "may")
}
