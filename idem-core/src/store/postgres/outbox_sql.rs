//! The statements of the outbox.

/// Inserts the name with the number $2 if it is new, and returns its number and namespace. No row: another process
/// inserts it now, or another name has the number.
pub(super) const REGISTER: &str = "
    WITH by_id AS (
        INSERT INTO {schema}.outboxes (name) SELECT '' WHERE false ON CONFLICT (id) DO NOTHING
    ), by_name AS (
        INSERT INTO {schema}.outboxes (name) SELECT '' WHERE false ON CONFLICT (name) DO NOTHING
    ), made AS (
        INSERT INTO {schema}.outboxes (id, name) OVERRIDING SYSTEM VALUE
        SELECT $2::int, $1::text WHERE NOT EXISTS (SELECT FROM {schema}.outboxes WHERE name = $1::text)
        ON CONFLICT DO NOTHING RETURNING id, namespace
    )
    SELECT id, namespace FROM made UNION ALL SELECT id, namespace FROM {schema}.outboxes WHERE name = $1";

/// The INSERT of one message.
pub(super) const STAGE: &str = "
    INSERT INTO {schema}.outbox_messages (outbox_id, message_id, destination, key, envelope, payload)
    VALUES ($1, $2, pg_catalog.convert_from($3, 'UTF8'), $4, pg_catalog.convert_from($5, 'UTF8')::pg_catalog.json, $6)";

/// Prepared in each connection: the server would otherwise parse and plan it for each message.
pub(super) fn prepare() -> String {
    format!("PREPARE idem_stage AS {STAGE}")
}

/// The INSERT of an application in its own transaction. The order of the rows is that of the arrays. Returns how many rows it has
/// inserted. The transaction gets its number before it draws ids, as relays rely on.
///
/// The connection may be one of another database, and the store's may have been restored since the number of the outbox was read:
/// then it inserts nothing.
pub(super) const STAGE_OWN: &str = "
    WITH staged AS (
        INSERT INTO {schema}.outbox_messages (outbox_id, message_id, destination, key, envelope, payload)
        SELECT $1, new.message_id, pg_catalog.convert_from(new.destination, 'UTF8'), new.key,
               pg_catalog.convert_from(new.envelope, 'UTF8')::pg_catalog.json, new.payload
        FROM unnest($2::pg_catalog.uuid[], $3::pg_catalog.bytea[], $4::pg_catalog.bytea[], $5::pg_catalog.bytea[],
                    $6::pg_catalog.bytea[])
            WITH ORDINALITY AS new (message_id, destination, key, envelope, payload, place)
        WHERE pg_catalog.pg_current_xact_id() IS NOT NULL AND EXISTS (SELECT FROM {schema}.outboxes WHERE id = $1)
        ORDER BY new.place
        RETURNING 1
    )
    SELECT count(*) FROM staged";

/// The columns of a message.
const COLUMNS: &str = "m.id, m.message_id, m.attempts, m.destination, m.key, m.envelope::text, m.payload,
    (extract(epoch FROM m.created_at) * 1000000)::bigint";

/// The conditions of a read, by its filter, whose values are $8 and $9. `IN` of a subquery searches a hash table under any
/// plan, as long as that fits into `work_mem`: that of about 75,000 keys does by default. With more, each row is compared with each key.
/// Behind `IS TRUE` the planner makes no join of it, which would not read in the order of the index.
pub(super) const EXCEPT: &str = "o.key NOT IN (SELECT unnest($8::bytea[]))
    AND (o.key <> '' OR o.destination NOT IN (SELECT unnest($9::text[])))";
pub(super) const OF_KEYS: &str = "(o.key IN (SELECT unnest($8::bytea[]))) IS TRUE";
pub(super) const TO_DESTINATION: &str = "o.key = '' AND o.destination = $8::text";
pub(super) const BY_ID: &str = "o.id = ANY($8::bigint[])";

/// One search of the primary key. The size of a large value is read without the value.
///
/// The open transactions are those of the snapshot in which the rows are searched: one that is not listed any more has
/// its rows in it. A snapshot lists only those below its upper bound.
pub(super) fn read(condition: &str) -> String {
    format!(
        "WITH snapshot AS MATERIALIZED (
            SELECT ARRAY (SELECT id::text::bigint FROM pg_snapshot_xip(pg_current_snapshot()) AS id) AS open,
                   pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS above,
                   (SELECT oid::bigint FROM pg_database WHERE datname = current_database()) << 32
                       | pg_relation_filenode($7::text::regclass)::bigint AS place
        ), part AS MATERIALIZED (
            SELECT o.*, octet_length(o.payload) + octet_length(o.envelope::text) AS size
            FROM {{schema}}.outbox_messages AS o
            WHERE o.outbox_id = $1 AND o.id BETWEEN $2 AND $3 AND o.id NOT IN (SELECT unnest($4::bigint[])) AND {condition}
            ORDER BY o.id LIMIT $5
        ), m AS (
            SELECT part.*, sum(size) OVER ids AS bytes, row_number() OVER ids AS number, lead(size) OVER ids AS next
            FROM part WINDOW ids AS (ORDER BY id)
        )
        SELECT {COLUMNS}, (extract(epoch FROM clock_timestamp() - m.created_at) * 1000000)::bigint,
               greatest(0, (extract(epoch FROM m.run_at - clock_timestamp()) * 1000000)::bigint),
               coalesce(m.bytes + m.next > $6, false), CASE WHEN m.number > 1 THEN NULL ELSE snapshot.open END,
               snapshot.above, snapshot.place
        FROM snapshot LEFT JOIN m ON m.bytes <= $6 OR m.number = 1
        ORDER BY m.id"
    )
}

/// The highest id that was drawn. A role that may not read the sequence gets none.
pub(super) const HIGHEST: &str = "
    SELECT CASE WHEN has_sequence_privilege(sequence, 'SELECT') THEN pg_sequence_last_value(sequence::regclass) END AS id
    FROM pg_get_serial_sequence($1, 'id') AS sequence";

/// Draws a number behind the highest id.
pub(super) fn mark() -> String {
    format!(
        "WITH drawn AS MATERIALIZED ({HIGHEST})
        SELECT coalesce(id, 0), pg_current_xact_id()::text::bigint FROM drawn"
    )
}

/// Only while the lease is held under the token.
const OURS: &str = "EXISTS (SELECT FROM {schema}.outboxes WHERE id = $1 AND locked_by = $2)";

/// The row that is named: an id may have been given again since it was read.
fn same(named: &str) -> String {
    format!("m.outbox_id = $1 AND m.id = {named}.id AND m.message_id = {named}.message_id")
}

pub(super) fn delete() -> String {
    format!(
        "WITH gone AS (
            DELETE FROM {{schema}}.outbox_messages AS m USING unnest($3::bigint[], $4::uuid[]) AS done (id, message_id)
            WHERE {} AND {OURS} RETURNING 1
        )
        SELECT count(*) FROM gone",
        same("done")
    )
}

/// Records attempts of messages, and makes dead letters of those without a time ($5) of their next attempt. It is one statement:
/// if the second of two failed, the first would be repeated, and count again.
pub(super) fn record() -> String {
    format!(
        "WITH failed AS MATERIALIZED (
            SELECT id, message_id, due, pg_catalog.convert_from(error, 'UTF8') AS error, attempts
            FROM unnest($3::bigint[], $4::uuid[], $5::float8[], $6::bytea[], $7::int[])
                AS failed (id, message_id, due, error, attempts)
        ), again AS (
            UPDATE {{schema}}.outbox_messages AS m
            SET attempts = greatest(m.attempts, failed.attempts), error = failed.error,
                run_at = clock_timestamp() + failed.due * interval '1 second'
            FROM failed
            WHERE {0} AND failed.due IS NOT NULL AND {OURS}
        ), gone AS (
            DELETE FROM {{schema}}.outbox_messages AS m USING failed
            WHERE {0} AND failed.due IS NULL AND {OURS}
            RETURNING m.outbox_id, m.message_id, m.created_at, greatest(m.attempts, failed.attempts) AS attempts,
                      m.destination, m.key, m.envelope, m.payload, failed.error
        )
        INSERT INTO {{schema}}.outbox_dead
            (outbox_id, message_id, created_at, attempts, destination, key, envelope, payload, error)
        SELECT * FROM gone",
        same("failed")
    )
}

/// The messages with these ids, and the age of the first one. The count stops at the limit.
pub(super) const WAITING: &str = "
    SELECT (SELECT count(*) FROM (
                SELECT FROM {schema}.outbox_messages WHERE outbox_id = $1 AND id BETWEEN $2 AND $3 LIMIT $4
            ) AS part),
           (SELECT (extract(epoch FROM clock_timestamp() - created_at) * 1000000)::bigint
            FROM {schema}.outbox_messages WHERE outbox_id = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT 1)";

/// The dead letters, counted up to the limit, and the time since a relay was seen.
pub(super) const STATS: &str = "
    SELECT (SELECT count(*) FROM (SELECT FROM {schema}.outbox_dead WHERE outbox_id = $1 LIMIT $2) AS part),
           (SELECT (extract(epoch FROM clock_timestamp() - nullif(relay_seen_at, '-infinity')) * 1000000)::bigint
            FROM {schema}.outboxes WHERE id = $1)";

/// The outboxes with messages that no relay has looked at for $1 seconds.
pub(super) const UNREAD: &str = "
    SELECT o.name, (SELECT count(*) FROM (SELECT FROM {schema}.outbox_messages WHERE outbox_id = o.id LIMIT $2) AS part),
           (extract(epoch FROM clock_timestamp() - first.created_at) * 1000000)::bigint
    FROM {schema}.outboxes AS o CROSS JOIN LATERAL (
        SELECT m.created_at FROM {schema}.outbox_messages AS m WHERE m.outbox_id = o.id ORDER BY m.id LIMIT 1
    ) AS first
    WHERE o.relay_seen_at < clock_timestamp() - $1 * interval '1 second'
      AND first.created_at < clock_timestamp() - $1 * interval '1 second'";

pub(super) fn dead() -> String {
    format!(
        "SELECT {COLUMNS}, m.error, (extract(epoch FROM m.died_at) * 1000000)::bigint FROM {{schema}}.outbox_dead AS m
        WHERE m.outbox_id = $1 AND m.id < coalesce($2, 9223372036854775807) ORDER BY m.id DESC LIMIT $3"
    )
}

/// Deletes the dead letters $2, and stages them again if $3 is true, the oldest one first. $4, $5 and $6 are the command, its action and
/// its actor. Locked as an operator's dead rows of the inbox are.
pub(super) const REMOVE_DEAD: &str = "
    WITH found AS MATERIALIZED (
        SELECT id FROM {schema}.outbox_dead WHERE outbox_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM {schema}.outbox_dead AS m USING found WHERE m.id = found.id RETURNING m.*
    ), again AS (
        INSERT INTO {schema}.outbox_messages (outbox_id, message_id, created_at, destination, key, envelope, payload)
        SELECT outbox_id, message_id, created_at, destination, key, envelope, payload FROM gone WHERE $3 ORDER BY id
    ), noted AS (
        INSERT INTO {schema}.operations (command, action, actor, outbox_id, row_id, key, attempts, error)
        SELECT $4::uuid, $5::text, $6::text, outbox_id, id, key, attempts, error FROM gone ORDER BY id
    )
    SELECT id FROM gone ORDER BY id";
