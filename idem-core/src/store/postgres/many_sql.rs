//! The statements of several messages at once.

/// As the claim of one message, with a shorter lock timeout. The timeout is set before the first row, and restored
/// after an aggregate: in RETURNING, the first claim would restore it before the second one waits. Sorted here as well,
/// since a join may return rows in any order. The new claims are listed only if some are not new. How far claims of the
/// handlers $8 were pruned is read in the same snapshot as NOT EXISTS, as for one claim.
///
/// `OFFSET 0` makes NOT EXISTS an index lookup per key (PostgreSQL does not pull up a sublink with OFFSET). As a join
/// it is hashed while the table has no statistics, and reads all claims for each batch until autovacuum runs.
fn claim(on_conflict: &str, batch: &str) -> String {
    format!(
        "
    WITH claimed AS (
        INSERT INTO {{schema}}.processed_messages AS claim (handler_id, key, fingerprint, processed_at, batch_xid)
        SELECT new.handler_id, new.key, new.fingerprint, CASE WHEN $4 THEN now() END, {batch}
        FROM unnest($1::int[], $2::bytea[], $3::bytea[]) AS new (handler_id, key, fingerprint)
        WHERE (SELECT set_config('lock_timeout', $5, true)) IS NOT NULL AND NOT EXISTS (
            SELECT FROM {{schema}}.processed_messages AS known
            WHERE known.handler_id = new.handler_id AND known.key = new.key OFFSET 0
        )
        ORDER BY new.handler_id, new.key
        {on_conflict}
        RETURNING handler_id, key
    )
    SELECT CASE WHEN count(*) < cardinality($1) THEN array_agg(handler_id) END,
           CASE WHEN count(*) < cardinality($1) THEN array_agg(key) END,
           CASE WHEN count(*) > 0 THEN pg_current_xact_id()::text END,
           set_config('lock_timeout', CASE WHEN count(*) > 0 THEN coalesce($6, $7) ELSE $7 END, true),
           (SELECT array_agg(row.pruned_through ORDER BY row.place) FROM (
               SELECT asked.place, (extract(epoch FROM h.pruned_through) * 1000000)::bigint AS pruned_through
               FROM unnest($8::int[]) WITH ORDINALITY AS asked (id, place)
               LEFT JOIN {{schema}}.handlers AS h ON h.id = asked.id
           ) AS row)
    FROM claimed"
    )
}

/// For keys that no other transaction claims at the same time, which is nearly always the case. ON CONFLICT searches
/// the index once more and marks each row as tentative, which takes a third of the statement's time; without it a lost
/// race is an error.
pub(super) fn claim_uncontended() -> String {
    // One claim records that only idem commits this transaction. The first one is new: otherwise the statement fails.
    claim("", "CASE WHEN $4 AND row_number() OVER (ORDER BY new.handler_id, new.key) = 1 THEN pg_current_xact_id() END")
}

/// For keys that another transaction may claim at the same time.
pub(super) fn claim_contended() -> String {
    // It is not known yet which of them is new; [`MARK`] follows.
    claim("ON CONFLICT (handler_id, key) DO NOTHING", "NULL::xid8")
}

/// Records in one claim that only idem commits its transaction.
pub(super) const MARK: &str = "
    UPDATE {schema}.processed_messages SET batch_xid = pg_current_xact_id() WHERE handler_id = $1 AND key = $2";

const ANSWER: &str = "
    SELECT claim.handler_id, claim.key, claim.fingerprint,
           (extract(epoch FROM clock_timestamp() - claim.processed_at) * 1000000)::bigint
    FROM unnest($1::int[], $2::bytea[]) AS asked (handler_id, key)";

/// Rows are locked after the sort (PostgreSQL manual, SELECT, The Locking Clause).
pub(super) fn existing_claim() -> String {
    format!(
        "{ANSWER} JOIN {{schema}}.processed_messages AS claim
             ON claim.handler_id = asked.handler_id AND claim.key = asked.key
         ORDER BY claim.handler_id, claim.key FOR KEY SHARE OF claim"
    )
}

/// `OFFSET 0` as in the claim.
pub(super) fn unlocked_claims() -> String {
    format!(
        "{ANSWER} CROSS JOIN LATERAL (
             SELECT * FROM {{schema}}.processed_messages AS claim
             WHERE claim.handler_id = asked.handler_id AND claim.key = asked.key OFFSET 0
         ) AS claim"
    )
}

/// As the start of one row.
pub(super) const START: &str = "
    WITH gone AS (
        DELETE FROM {schema}.inbox_messages AS i USING unnest($1::bigint[], $2::uuid[]) AS ours (id, locked_by)
        WHERE i.id = ours.id AND i.locked_by = ours.locked_by RETURNING i.id, i.handler_id, i.key
    ), dated AS (
        UPDATE {schema}.processed_messages AS claim
        SET processed_at = now(),
            batch_xid = CASE WHEN gone.id = (SELECT min(id) FROM gone) THEN pg_current_xact_id() END
        FROM gone
        WHERE claim.handler_id = gone.handler_id AND claim.key = gone.key
    )
    SELECT array_agg(id), pg_current_xact_id()::text, set_config('lock_timeout', $3, true)
    FROM gone HAVING count(*) > 0";

pub(super) const INSERT: &str = "
    INSERT INTO {schema}.inbox_messages AS i
        (handler_id, key, fingerprint, payload, envelope, attempts, state, run_at, reason, died_at, error, provider_key)
    SELECT new.handler_id, new.key, new.fingerprint, new.payload,
           pg_catalog.convert_from(new.envelope, 'UTF8')::pg_catalog.json, new.attempts,
           CASE WHEN new.reason IS NOT NULL THEN 'dead' WHEN new.calls THEN 'calling' ELSE 'scheduled' END,
           now() + new.due * interval '1 second',
           new.reason, CASE WHEN new.reason IS NOT NULL THEN now() END, pg_catalog.convert_from(new.error, 'UTF8'),
           new.provider_key
    FROM unnest($1::int[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::int[], $7::float8[], $8::text[],
                $9::bytea[], $10::boolean[], $11::uuid[])
        AS new (handler_id, key, fingerprint, payload, envelope, attempts, due, reason, error, calls, provider_key)
    ORDER BY new.handler_id, new.key, new.fingerprint
    ON CONFLICT (handler_id, key, fingerprint) DO UPDATE SET deliveries = i.deliveries + 1
    RETURNING 1";

/// The rows are locked in the order of their ids, so that two transactions cannot deadlock.
pub(super) const COUNT_DUPLICATES: &str = "
    WITH seen AS (
        SELECT handler_id, key, fingerprint, count(*) AS times
        FROM unnest($1::int[], $2::bytea[], $3::bytea[]) AS seen (handler_id, key, fingerprint)
        GROUP BY handler_id, key, fingerprint
    ), found AS MATERIALIZED (
        SELECT i.id, seen.times FROM seen JOIN {schema}.inbox_messages AS i
            ON i.handler_id = seen.handler_id AND i.key = seen.key AND i.fingerprint = seen.fingerprint
        WHERE i.state = 'dead'
        ORDER BY i.id FOR UPDATE OF i
    )
    UPDATE {schema}.inbox_messages AS i SET deliveries = i.deliveries + found.times
    FROM found WHERE i.id = found.id";
