//! The statements of handlers.

/// With ON CONFLICT alone, each start of each worker would advance the sequence; `NOT EXISTS` prevents that.
pub(super) const INTERN: &str = "
    INSERT INTO {schema}.handlers (consumer, name, retention)
    SELECT DISTINCT $1, name, $3::float8 * interval '1 second' FROM unnest($2::text[]) AS name
    WHERE NOT EXISTS (SELECT FROM {schema}.handlers AS h WHERE h.consumer = $1 AND h.name = name.name)
    ON CONFLICT (consumer, name) DO NOTHING";

/// The greater value wins. Null means forever, so it is never replaced. Rows are locked in the order of their ids, as
/// prune locks them.
pub(super) const KEEP: &str = "
    WITH shorter AS MATERIALIZED (
        SELECT id FROM {schema}.handlers
        WHERE consumer = $1 AND name = ANY($2) AND retention < $3::float8 * interval '1 second' ORDER BY id FOR UPDATE
    )
    UPDATE {schema}.handlers AS h SET retention = greatest(h.retention, $3::float8 * interval '1 second')
    FROM shorter WHERE h.id = shorter.id";

pub(super) const RETENTION: &str = "
    SELECT (extract(epoch FROM h.retention) * 1000000)::bigint
    FROM unnest($1::int[]) WITH ORDINALITY AS asked (id, place) LEFT JOIN {schema}.handlers AS h ON h.id = asked.id
    ORDER BY asked.place";

pub(super) const HANDLERS: &str = "
    SELECT name, id, (extract(epoch FROM retention) * 1000000)::bigint
    FROM {schema}.handlers WHERE consumer = $1 AND name = ANY($2)";

/// Waits for no lock, so that workers and prune never block each other, and writes a row at most twice a minute,
/// regardless of how many workers have the handler: each claim reads the row.
pub(super) const SEEN: &str = "
    WITH stale AS MATERIALIZED (
        SELECT id FROM {schema}.handlers
        WHERE id = ANY($1) AND seen_at < now() - interval '30 seconds' FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE {schema}.handlers AS h SET seen_at = now() FROM stale WHERE h.id = stale.id";

pub(super) const WAITING: &str = "
    SELECT name, (extract(epoch FROM now() - seen_at) * 1000000)::bigint FROM {schema}.handlers AS h
    WHERE consumer = $1 AND EXISTS (SELECT FROM {schema}.inbox_messages AS i WHERE i.handler_id = h.id)
    ORDER BY name";

/// A date that is before every message shows that the handler has processed messages, and makes none of them too old.
pub(super) const RECORD_HISTORY: &str = "
    UPDATE {schema}.handlers SET pruned_through = 'epoch' WHERE id = $1 AND pruned_through IS NULL";

/// `pruned_through` shows that a claim existed even if all claims were pruned, or that messages were processed without
/// claims. Uses the indexes, for each handler. `has_versions` is the expression for that.
fn histories(has_versions: &str) -> String {
    format!(
        "
    SELECT name, (extract(epoch FROM now() - seen_at) * 1000000)::bigint, has_claims, has_versions,
           has_claims OR pruned_through IS NOT NULL
    FROM {{schema}}.handlers AS h,
        LATERAL (SELECT EXISTS (SELECT FROM {{schema}}.processed_messages AS p WHERE p.handler_id = h.id),
                        {has_versions}) AS has (has_claims, has_versions)
    WHERE consumer = $1 AND (has_claims OR pruned_through IS NOT NULL OR has_versions)
    ORDER BY name"
    )
}

/// Where the table of latest versions may be missing.
pub(super) fn histories_alone() -> String {
    histories("false")
}

pub(super) fn histories_with_versions() -> String {
    histories("EXISTS (SELECT FROM {schema}.latest_versions AS v WHERE v.handler_id = h.id)")
}
