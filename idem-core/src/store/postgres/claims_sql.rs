//! The statements of claims.

/// `WHERE NOT EXISTS` returns at once if a committed claim is being updated by an inbox run; a plain ON CONFLICT would
/// wait for that update. It still waits for an uncommitted insert. The lock timeout is restored to the session's own
/// for the handler, in the same round trip; the transaction id is for the guard.
///
/// How far claims were pruned comes from the snapshot in which NOT EXISTS searches for the claim: a claim that is not
/// in it was either never made, or deleted by a prune whose date is in it. A plain ON CONFLICT sees the current rows,
/// and would miss the date of a prune that committed after the snapshot.
///
/// An existing claim is in the answer, so that a duplicate of a processed message costs one round trip and no lock. Its
/// fingerprint is text: the answer of EXECUTE comes in the simple protocol, where a bytea looks as `bytea_output` says.
fn claim_one_with(on_conflict: &str) -> String {
    format!(
        "
    WITH existing AS MATERIALIZED (
        SELECT fingerprint, (extract(epoch FROM clock_timestamp() - processed_at) * 1000000)::bigint AS age
        FROM {{schema}}.processed_messages WHERE handler_id = $1 AND key = $2
    ), inserted AS (
        INSERT INTO {{schema}}.processed_messages AS claim (handler_id, key, fingerprint, processed_at)
        SELECT $1, $2, $3, now() WHERE NOT EXISTS (SELECT FROM existing)
        {on_conflict}
        RETURNING CASE WHEN set_config('lock_timeout', $4, true) IS NOT NULL THEN pg_current_xact_id()::text END,
                  (SELECT (extract(epoch FROM pruned_through) * 1000000)::bigint FROM {{schema}}.handlers WHERE id = $1)
    )
    SELECT inserted.*, NULL::text, NULL::bigint FROM inserted
    UNION ALL SELECT NULL, NULL, pg_catalog.encode(fingerprint, 'hex'), age FROM existing"
    )
}

/// The claim for a key that another transaction may claim at the same time.
pub(super) fn claim_one() -> String {
    claim_one_with("ON CONFLICT (handler_id, key) DO NOTHING")
}

/// As the claim of one message, with a shorter lock timeout. The timeout is set before the first row, and restored
/// after an aggregate: in RETURNING, the first claim would restore it before the second one waits. Sorted here as well,
/// since a join may return rows in any order. The new claims are listed in this order. How far claims of the handlers were pruned
/// is read in the same snapshot as NOT EXISTS, as for one claim.
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
    SELECT array_agg(handler_id ORDER BY handler_id, key), array_agg(key ORDER BY handler_id, key),
           CASE WHEN count(*) > 0 THEN pg_current_xact_id()::text END,
           set_config('lock_timeout', CASE WHEN count(*) > 0 THEN coalesce($6, $7) ELSE $7 END, true),
           (SELECT array_agg((extract(epoch FROM h.pruned_through) * 1000000)::bigint ORDER BY asked.place)
            FROM unnest($1::int[]) WITH ORDINALITY AS asked (id, place) LEFT JOIN {{schema}}.handlers AS h ON h.id = asked.id)
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

/// Reads claims, and locks them in the order in which they are asked for. `OFFSET 0` as in the claim.
pub(super) fn existing_claims(lock: bool) -> String {
    let lock = if lock { "FOR KEY SHARE" } else { "" };
    format!(
        "
    SELECT claim.handler_id, claim.key, claim.fingerprint,
           (extract(epoch FROM clock_timestamp() - claim.processed_at) * 1000000)::bigint
    FROM unnest($1::int[], $2::bytea[]) AS asked (handler_id, key) CROSS JOIN LATERAL (
        SELECT * FROM {{schema}}.processed_messages AS known
        WHERE known.handler_id = asked.handler_id AND known.key = asked.key OFFSET 0 {lock}
    ) AS claim"
    )
}

/// The claim of an application in its own transaction, whose settings are left alone. The connection may be one of another
/// database, and the store's may have been restored since the number was read: then it inserts nothing.
pub(super) const OWN: &str = "
    INSERT INTO {schema}.processed_messages (handler_id, key, fingerprint, processed_at)
    SELECT $1, $2, $3, now()
    WHERE EXISTS (SELECT FROM {schema}.handlers WHERE id = $1)
      AND NOT EXISTS (SELECT FROM {schema}.processed_messages WHERE handler_id = $1 AND key = $2)
    ON CONFLICT (handler_id, key) DO NOTHING
    RETURNING 1";

/// The claim that an application has found, and whether its own transaction has made it. Its `xmin`, which may be that of a
/// savepoint, is in progress then, and no other such row is visible. A row that began at another time is of another
/// transaction, and its `xmin` may mean nothing any more.
pub(super) const OWN_EXISTING: &str = "
    SELECT fingerprint, coalesce(CASE WHEN processed_at = now() AND later < 2147483648
        THEN pg_catalog.pg_xact_status((own + later)::text::pg_catalog.xid8) = 'in progress' END, false)
    FROM (
        SELECT claim.fingerprint, claim.processed_at, own,
            (claim.xmin::text::bigint - own % 4294967296 + 4294967296) % 4294967296 AS later
        FROM {schema}.processed_messages AS claim,
            (SELECT pg_catalog.pg_current_xact_id_if_assigned()::text::bigint) AS current (own)
        WHERE claim.handler_id = $1 AND claim.key = $2 FOR KEY SHARE OF claim
    ) AS found";

/// $3 the transaction that dated the claim. Any later change gives it another `xmin`, as in [`STANDS`].
pub(super) const REOPEN: &str = "
    UPDATE {schema}.processed_messages SET processed_at = NULL
    WHERE handler_id = $1 AND key = $2 AND xmin = ($3::text::pg_catalog.xid8)::pg_catalog.xid RETURNING 1";

/// The same statement for the simple protocol, in which it can follow BEGIN in one string. It is prepared once per
/// connection, since the server would otherwise parse and plan it for each message.
///
/// For a key that no other transaction claims at the same time, which is nearly always the case: ON CONFLICT searches the
/// index once more, marks the row as tentative, and writes one more record to the write-ahead log. Without it a lost race is
/// an error, and the other statement follows in a new transaction.
pub(super) fn prepare() -> String {
    format!("PREPARE idem_claim AS {}", claim_one_with(""))
}

/// Whether a claim exists as this transaction wrote it (PostgreSQL manual, 5.6, xmin).
pub(super) const STANDS: &str = "
    SELECT FROM {schema}.processed_messages
    WHERE handler_id = $1 AND key = $2 AND xmin = ($3::text::pg_catalog.xid8)::pg_catalog.xid";

/// Inserts a row and deletes it again.
pub(super) const PING: &str = "
    INSERT INTO {schema}.processed_messages (handler_id, key, fingerprint) VALUES (0, $1, '');
    DELETE FROM {schema}.processed_messages WHERE handler_id = 0 AND key = $1";
