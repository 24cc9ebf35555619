//! The statements of the outbox.

/// Inserts the name with the number $3 if it is new, and those of its lanes that are missing, and returns its number and
/// namespace. No row: another process inserts it now, or another name has the number.
pub(super) const REGISTER: &str = "
    WITH by_id AS (
        INSERT INTO {schema}.outboxes (name) SELECT '' WHERE false ON CONFLICT (id) DO NOTHING
    ), by_name AS (
        INSERT INTO {schema}.outboxes (name) SELECT '' WHERE false ON CONFLICT (name) DO NOTHING
    ), made AS (
        INSERT INTO {schema}.outboxes (id, name) OVERRIDING SYSTEM VALUE
        SELECT $3::int, $1::text WHERE NOT EXISTS (SELECT FROM {schema}.outboxes WHERE name = $1::text)
        ON CONFLICT DO NOTHING RETURNING id, namespace
    ), known AS (
        SELECT id, namespace FROM made UNION ALL SELECT id, namespace FROM {schema}.outboxes WHERE name = $1
    ), lanes AS (
        INSERT INTO {schema}.outbox_lanes (outbox_id, lane)
        SELECT known.id, lane FROM known, generate_series(0, $2) AS lane
        WHERE NOT EXISTS (SELECT FROM {schema}.outbox_lanes AS l WHERE l.outbox_id = known.id AND l.lane = lane.lane)
        ON CONFLICT DO NOTHING
    )
    SELECT id, namespace FROM known";

/// The INSERT of one message, prepared in each connection: the server would otherwise parse and plan it for each.
pub(super) const PREPARE: &str = "
    PREPARE idem_stage (pg_catalog.int4, pg_catalog.int2, pg_catalog.uuid, pg_catalog.bytea, pg_catalog.bytea,
                        pg_catalog.bytea, pg_catalog.bytea) AS
        INSERT INTO {schema}.outbox_messages (outbox_id, lane, message_id, destination, key, envelope, payload)
        VALUES ($1, $2, $3, pg_catalog.convert_from($4, 'UTF8'), $5,
                pg_catalog.convert_from($6, 'UTF8')::pg_catalog.json, $7)";

/// The INSERT of many or large messages, where this condition holds. The order of the rows is that of the arrays. Returns how many
/// rows it has inserted.
fn stage_where(condition: &str) -> String {
    format!(
        "
    WITH staged AS (
        INSERT INTO {{schema}}.outbox_messages (outbox_id, lane, message_id, destination, key, envelope, payload)
        SELECT $1, new.lane, new.message_id, pg_catalog.convert_from(new.destination, 'UTF8'), new.key,
               pg_catalog.convert_from(new.envelope, 'UTF8')::pg_catalog.json, new.payload
        FROM unnest($2::pg_catalog.int2[], $3::pg_catalog.uuid[], $4::pg_catalog.bytea[], $5::pg_catalog.bytea[],
                    $6::pg_catalog.bytea[], $7::pg_catalog.bytea[])
            WITH ORDINALITY AS new (lane, message_id, destination, key, envelope, payload, place)
        WHERE {condition}
        ORDER BY new.place
        RETURNING 1
    )
    SELECT count(*) FROM staged"
    )
}

/// In any transaction but the one with the number $8, it inserts nothing: after a COMMIT of the handler there is none, and
/// what this inserted would be committed at once.
pub(super) fn stage_many() -> String {
    stage_where(&ours("$8"))
}

/// Whether the transaction has this number, if there is one. Without it the transaction gets its number before it draws ids, as
/// relays rely on.
pub(super) fn ours(number: &str) -> String {
    format!(
        "CASE
            WHEN {number}::pg_catalog.text IS NULL THEN pg_catalog.pg_current_xact_id() IS NOT NULL
            ELSE pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text = {number}::pg_catalog.text
        END"
    )
}

/// In a transaction of the application's own, which gets its number before it draws ids, as relays rely on. The connection may
/// be one of another database, and the store's may have been restored since the number was read: then it inserts nothing.
pub(super) fn stage_own() -> String {
    stage_where("pg_catalog.pg_current_xact_id() IS NOT NULL AND EXISTS (SELECT FROM {schema}.outboxes WHERE id = $1)")
}

/// The relays of which nothing was heard for a while are removed by the others, without waiting for each other: after a
/// pause of the server, all of them may be late.
///
/// The order of the CTEs matters. Nothing reads `gone` and `alive`; the server runs such ones after the others, from the
/// last to the first. So a relay locks its own row before those of others, which it skips if they are locked. If it
/// removed others first, two relays that are late would each wait for the row of the other: a deadlock.
pub(super) const ALIVE: &str = "
    WITH late AS MATERIALIZED (
        SELECT token FROM {schema}.outbox_relays
        WHERE outbox_id = $1 AND alive_until < now() AND token <> $2 FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM {schema}.outbox_relays AS r USING late WHERE r.outbox_id = $1 AND r.token = late.token
    ), alive AS (
        INSERT INTO {schema}.outbox_relays (outbox_id, token, alive_until)
        VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')
        ON CONFLICT (outbox_id, token) DO UPDATE SET alive_until = excluded.alive_until
    ), renewed AS (
        UPDATE {schema}.outbox_lanes SET locked_until = clock_timestamp() + $3 * interval '1 second'
        WHERE outbox_id = $1 AND locked_by = $2 RETURNING lane
    )
    SELECT coalesce((SELECT array_agg(lane ORDER BY lane) FROM renewed), '{}'),
           1 + (SELECT count(*) FROM {schema}.outbox_relays
                WHERE outbox_id = $1 AND token <> $2 AND alive_until >= clock_timestamp())";

pub(super) const TAKE: &str = "
    WITH free AS MATERIALIZED (
        SELECT lane FROM {schema}.outbox_lanes
        WHERE outbox_id = $1 AND (locked_by IS NULL OR locked_until < clock_timestamp())
        ORDER BY lane LIMIT $4 FOR UPDATE SKIP LOCKED
    )
    UPDATE {schema}.outbox_lanes AS l SET locked_by = $2, locked_until = clock_timestamp() + $3 * interval '1 second'
    FROM free WHERE l.outbox_id = $1 AND l.lane = free.lane RETURNING l.lane";

pub(super) const GIVE: &str = "
    WITH gone AS (
        DELETE FROM {schema}.outbox_relays WHERE outbox_id = $1 AND token = $2 AND $3::int2[] IS NULL
    )
    UPDATE {schema}.outbox_lanes SET locked_by = NULL, locked_until = '-infinity'
    WHERE outbox_id = $1 AND locked_by = $2 AND ($3::int2[] IS NULL OR lane = ANY($3))";

/// The columns of a message.
const COLUMNS: &str = "m.id, m.lane, m.message_id, m.attempts, m.destination, m.key, m.envelope::text, m.payload,
    (extract(epoch FROM m.created_at) * 1000000)::bigint";

/// One search of the primary key for each lane. The size of a large value is read without the value.
///
/// The open transactions are those of the snapshot in which the rows are searched: one that is not listed any more has
/// its rows in it. To have a number of its own ($8) tells the transactions that began to write before apart from later
/// ones; a snapshot lists only those below its upper bound, and that number moves the bound.
///
/// A relay may wait for many messages. `NOT IN` of a subquery searches a hash table under any plan, which is built once
/// for all lanes. `<> ALL` of a parameter would compare each row with each of them.
pub(super) fn read() -> String {
    format!(
        "WITH now_open AS MATERIALIZED (
            SELECT ARRAY (SELECT id::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS id) AS open,
                   CASE WHEN $8 THEN pg_current_xact_id()::text::bigint END AS mark
        ), found AS (
        SELECT m.*
        FROM unnest($2::int2[], $3::bigint[], $4::bigint[]) AS asked (lane, floor, most)
        CROSS JOIN LATERAL (
            SELECT part.*, sum(part.size) OVER (ORDER BY part.id) AS bytes,
                   row_number() OVER (ORDER BY part.id) AS place, lead(part.size) OVER (ORDER BY part.id) AS next
            FROM (
                SELECT o.*, octet_length(o.payload) + octet_length(o.envelope::text) AS size
                FROM {{schema}}.outbox_messages AS o
                WHERE o.outbox_id = $1 AND o.lane = asked.lane AND o.id >= asked.floor
                  AND o.key NOT IN (SELECT unnest($5::bytea[])) AND o.id NOT IN (SELECT unnest($7::bigint[]))
                ORDER BY o.id LIMIT asked.most
            ) AS part
        ) AS m
        WHERE m.bytes <= $6 OR m.place = 1
        )
        SELECT {COLUMNS}, (extract(epoch FROM clock_timestamp() - m.created_at) * 1000000)::bigint,
               greatest(0, (extract(epoch FROM m.run_at - clock_timestamp()) * 1000000)::bigint),
               now_open.open, now_open.mark, coalesce(m.bytes + m.next > $6, false)
        FROM now_open LEFT JOIN found AS m ON true
        ORDER BY m.lane, m.id"
    )
}

/// Only in lanes that are held under the token.
const OURS: &str = "EXISTS (
    SELECT FROM {schema}.outbox_lanes AS l WHERE l.outbox_id = m.outbox_id AND l.lane = m.lane AND l.locked_by = $2)";

/// The row that is named: an id may have been given again since it was read.
fn same(named: &str) -> String {
    format!("m.lane = {named}.lane AND m.id = {named}.id AND m.message_id = {named}.message_id")
}

pub(super) fn delete() -> String {
    format!(
        "WITH gone AS (
            DELETE FROM {{schema}}.outbox_messages AS m USING unnest($3::int2[], $4::bigint[], $5::uuid[]) AS done (lane, id, message_id)
            WHERE m.outbox_id = $1 AND {} AND {OURS} RETURNING 1
        )
        SELECT count(*) FROM gone",
        same("done")
    )
}

/// Charges messages, and makes dead letters of those without a time ($6) of their next attempt. It is one statement: if
/// the second of two failed, the first would be repeated, and charge again.
pub(super) fn record() -> String {
    format!(
        "WITH failed AS MATERIALIZED (
            SELECT lane, id, message_id, due, pg_catalog.convert_from(error, 'UTF8') AS error, attempts
            FROM unnest($3::int2[], $4::bigint[], $5::uuid[], $6::float8[], $7::bytea[], $8::int[])
                AS failed (lane, id, message_id, due, error, attempts)
        ), again AS (
            UPDATE {{schema}}.outbox_messages AS m
            SET attempts = greatest(m.attempts, failed.attempts), error = failed.error,
                run_at = clock_timestamp() + failed.due * interval '1 second'
            FROM failed
            WHERE m.outbox_id = $1 AND {0} AND failed.due IS NOT NULL AND {OURS}
        ), gone AS (
            DELETE FROM {{schema}}.outbox_messages AS m USING failed
            WHERE m.outbox_id = $1 AND {0} AND failed.due IS NULL AND {OURS}
            RETURNING m.outbox_id, m.lane, m.message_id, m.created_at, greatest(m.attempts, failed.attempts) AS attempts,
                      m.destination, m.key, m.envelope, m.payload, failed.error
        )
        INSERT INTO {{schema}}.outbox_dead
            (outbox_id, lane, message_id, created_at, attempts, destination, key, envelope, payload, error)
        SELECT * FROM gone",
        same("failed")
    )
}

/// The messages of some lanes. The oldest message of each lane is its first one. The count stops at the limit.
pub(super) const WAITING: &str = "
    SELECT (SELECT count(*) FROM (
               SELECT FROM {schema}.outbox_messages WHERE outbox_id = $1 AND lane BETWEEN $2 AND $3 LIMIT $4
           ) AS part),
           (SELECT (extract(epoch FROM clock_timestamp() - min(first.created_at)) * 1000000)::bigint
            FROM {schema}.outbox_lanes AS l CROSS JOIN LATERAL (
                SELECT m.created_at FROM {schema}.outbox_messages AS m
                WHERE m.outbox_id = $1 AND m.lane = l.lane ORDER BY m.id LIMIT 1
            ) AS first
            WHERE l.outbox_id = $1 AND l.lane BETWEEN $2 AND $3)";

/// The dead letters. The count stops at the limit.
pub(super) const DEAD: &str = "
    SELECT count(*) FROM (SELECT FROM {schema}.outbox_dead WHERE outbox_id = $1 LIMIT $2) AS part";

pub(super) const LIVE: &str = "
    SELECT count(*) FROM {schema}.outbox_relays WHERE outbox_id = $1 AND alive_until >= clock_timestamp()";

pub(super) fn dead() -> String {
    format!(
        "SELECT {COLUMNS}, m.error, (extract(epoch FROM m.died_at) * 1000000)::bigint FROM {{schema}}.outbox_dead AS m
        WHERE m.outbox_id = $1 AND m.id < coalesce($2, 9223372036854775807) ORDER BY m.id DESC LIMIT $3"
    )
}

pub(super) const REPLAY: &str = "
    WITH gone AS (DELETE FROM {schema}.outbox_dead WHERE outbox_id = $1 AND id = $2 RETURNING *), again AS (
        INSERT INTO {schema}.outbox_messages (outbox_id, lane, message_id, created_at, destination, key, envelope, payload)
        SELECT outbox_id, lane, message_id, created_at, destination, key, envelope, payload FROM gone
    )
    SELECT 1 FROM gone";

pub(super) const DISCARD: &str = "DELETE FROM {schema}.outbox_dead WHERE outbox_id = $1 AND id = $2 RETURNING 1";
