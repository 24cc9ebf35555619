//! The statements of handlers.

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

pub(super) const RETENTION: &str = "
    SELECT (extract(epoch FROM h.retention) * 1000000)::bigint
    FROM unnest($1::int[]) WITH ORDINALITY AS asked (id, place) LEFT JOIN {schema}.handlers AS h ON h.id = asked.id
    ORDER BY asked.place";

/// A former name comes behind the same name of another handler.
pub(super) const HANDLERS: &str = "
    SELECT name, id, false AS is_former FROM {schema}.handlers WHERE consumer = $1 AND name = ANY($2)
    UNION ALL
    SELECT f.name, h.id, true FROM {schema}.handlers AS h JOIN {schema}.former_names AS f ON f.handler_id = h.id
    WHERE h.consumer = $1 AND f.name = ANY($2)
    ORDER BY is_former";

/// Gives a handler another name, and keeps the one that it had.
pub(super) const RENAME: &str = "
    WITH kept AS (
        INSERT INTO {schema}.former_names (handler_id, name)
        SELECT id, name FROM {schema}.handlers WHERE id = $1 ON CONFLICT DO NOTHING
    )
    UPDATE {schema}.handlers SET name = $2 WHERE id = $1";

pub(super) const ADD_FORMER_NAME: &str = "
    INSERT INTO {schema}.former_names (handler_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING";

/// Deletes a handler to which nothing belongs.
pub(super) const FORGET: &str = "
    DELETE FROM {schema}.handlers AS h
    WHERE id = $1 AND pruned_through IS NULL
      AND NOT EXISTS (SELECT FROM {schema}.processed_messages AS p WHERE p.handler_id = h.id)
      AND NOT EXISTS (SELECT FROM {schema}.inbox_messages AS i WHERE i.handler_id = h.id)
    RETURNING id";

/// The other names of a handler.
const FORMER_NAMES: &str = "ARRAY(SELECT f.name FROM {schema}.former_names AS f WHERE f.handler_id = h.id)";

/// Waits for no lock, so that workers and prune never block each other, and writes a row at most twice a minute,
/// regardless of how many workers have the handler: each claim reads the row.
pub(super) const SEEN: &str = "
    WITH stale AS MATERIALIZED (
        SELECT id FROM {schema}.handlers
        WHERE id = ANY($1) AND seen_at < now() - interval '30 seconds' FOR NO KEY UPDATE SKIP LOCKED
    ), seen AS (
        UPDATE {schema}.handlers AS h SET seen_at = now() FROM stale WHERE h.id = stale.id
    )
    SELECT count(*) FROM {schema}.handlers WHERE id = ANY($1)";

pub(super) fn waiting() -> String {
    format!(
        "SELECT name, (extract(epoch FROM now() - seen_at) * 1000000)::bigint, {FORMER_NAMES} FROM {{schema}}.handlers AS h
        WHERE consumer = $1 AND EXISTS (SELECT FROM {{schema}}.inbox_messages AS i WHERE i.handler_id = h.id)
        ORDER BY name"
    )
}

/// A date that is before every message shows that the handler has processed messages, and makes none of them too old.
pub(super) const RECORD_HISTORY: &str = "
    UPDATE {schema}.handlers SET pruned_through = 'epoch' WHERE id = $1 AND pruned_through IS NULL";

/// `pruned_through` shows that a claim existed even if all claims were pruned, or that messages were processed without
/// claims. Uses the indexes, for each handler.
pub(super) fn histories() -> String {
    format!(
        "
    SELECT name, (extract(epoch FROM now() - seen_at) * 1000000)::bigint, has_claims, {FORMER_NAMES}
    FROM {{schema}}.handlers AS h,
        LATERAL (SELECT EXISTS (SELECT FROM {{schema}}.processed_messages AS p WHERE p.handler_id = h.id)) AS has (has_claims)
    WHERE consumer = $1 AND (has_claims OR pruned_through IS NOT NULL)
    ORDER BY name"
    )
}
