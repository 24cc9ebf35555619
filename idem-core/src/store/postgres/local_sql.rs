//! The statement of local messages.

/// The text of the error if a claim was made or removed while the statement ran.
pub(super) const RACED: &str = "idem: the key of a local message was claimed meanwhile";

/// Claims local messages, undated, and stores those whose claim is new, in one statement, so that it can stand in the
/// string of guard and COMMIT. Those whose key another message has claimed are stored as dead; those that were claimed
/// before are left out. $1 to $5: handlers, keys, fingerprints, payloads and envelopes, in claim order; $6: the error of
/// a conflict; $7: how long a claim waits for another transaction, in milliseconds; $8: the keys of external calls.
///
/// The lock timeout that the handler has left is set again at the end: what is deferred to the COMMIT runs under it.
///
/// A claim that is committed while the statement runs is in no snapshot of it: the INSERT finds it, and it cannot be
/// compared. Nothing may be committed then, so the statement fails, as the guard does. Existing claims are locked, so
/// that prune deletes none whose conflict is stored.
///
/// The rows are due by the clock: `now()` is the begin of the transaction, which may be long ago, and workers do not look
/// that far back each time.
pub(super) fn stage() -> String {
    format!(
        "WITH left_behind AS MATERIALIZED (
        SELECT pg_catalog.current_setting('lock_timeout') AS lock_timeout
    ), new AS MATERIALIZED (
        SELECT new.*
        FROM unnest($1::pg_catalog.int4[], $2::pg_catalog.bytea[], $3::pg_catalog.bytea[], $4::pg_catalog.bytea[],
                    $5::pg_catalog.bytea[], $8::pg_catalog.uuid[])
            WITH ORDINALITY AS new (handler_id, key, fingerprint, payload, envelope, provider_key, place)
        WHERE (SELECT pg_catalog.set_config('lock_timeout', $7, true) FROM left_behind) IS NOT NULL
    ), first AS MATERIALIZED (
        SELECT DISTINCT ON (handler_id, key) handler_id, key, fingerprint FROM new ORDER BY handler_id, key, place
    ), existing AS MATERIALIZED (
        SELECT claim.handler_id, claim.key, claim.fingerprint FROM first CROSS JOIN LATERAL (
            SELECT known.handler_id, known.key, known.fingerprint FROM {{schema}}.processed_messages AS known
            WHERE known.handler_id = first.handler_id AND known.key = first.key OFFSET 0 FOR KEY SHARE
        ) AS claim
    ), claimed AS (
        INSERT INTO {{schema}}.processed_messages (handler_id, key, fingerprint)
        SELECT handler_id, key, fingerprint FROM first
        WHERE NOT EXISTS (
            SELECT FROM existing WHERE existing.handler_id = first.handler_id AND existing.key = first.key
        )
        ORDER BY handler_id, key
        ON CONFLICT (handler_id, key) DO NOTHING
        RETURNING handler_id, key, fingerprint
    ), known AS MATERIALIZED (
        SELECT handler_id, key, fingerprint, true AS is_new FROM claimed
        UNION ALL SELECT handler_id, key, fingerprint, false FROM existing
    ), wanted AS MATERIALIZED (
        -- As `Fingerprint::is_copy_of`: those by different recipes are not compared.
        SELECT new.*, known.fingerprint <> new.fingerprint
                      AND pg_catalog.substr(known.fingerprint, 17) = pg_catalog.substr(new.fingerprint, 17) AS dead
        FROM new JOIN known ON known.handler_id = new.handler_id AND known.key = new.key
        WHERE known.is_new OR known.fingerprint <> new.fingerprint
                              AND pg_catalog.substr(known.fingerprint, 17) = pg_catalog.substr(new.fingerprint, 17)
    ), stored AS (
        INSERT INTO {{schema}}.inbox_messages AS i
            (handler_id, key, fingerprint, payload, envelope, state, run_at, reason, died_at, error, provider_key)
        SELECT handler_id, key, fingerprint, payload, pg_catalog.convert_from(envelope, 'UTF8')::pg_catalog.json,
               CASE WHEN dead THEN 'dead' ELSE 'scheduled' END,
               pg_catalog.clock_timestamp(), CASE WHEN dead THEN '{conflict}' END,
               CASE WHEN dead THEN pg_catalog.clock_timestamp() END,
               CASE WHEN dead THEN pg_catalog.convert_from($6::pg_catalog.bytea, 'UTF8') ELSE '' END,
               CASE WHEN NOT dead THEN provider_key END
        FROM wanted ORDER BY handler_id, key, place
        ON CONFLICT (handler_id, key, fingerprint) DO UPDATE SET deliveries = i.deliveries + 1
        RETURNING 1
    )
    SELECT CASE WHEN (SELECT count(*) FROM known) < (SELECT count(*) FROM first) THEN pg_catalog.concat('{RACED}')::int
                WHEN (SELECT count(*) FROM stored) < (SELECT count(*) FROM wanted)
                THEN pg_catalog.concat('a trigger of inbox_messages has refused a row')::int END,
           (SELECT count(*) FROM wanted WHERE dead) AS {CONFLICTS},
           (SELECT pg_catalog.set_config('lock_timeout', lock_timeout, true) FROM left_behind
            WHERE (SELECT count(*) FROM stored) >= 0)",
        conflict = crate::Reason::Conflict,
    )
}

/// Prepared in each connection: the server would otherwise parse and plan it for each message.
pub(super) fn prepare() -> String {
    format!("PREPARE idem_local AS {}", stage())
}

/// The column of the answer that has the number of conflicts.
pub(super) const CONFLICTS: &str = "idem_conflicts";
