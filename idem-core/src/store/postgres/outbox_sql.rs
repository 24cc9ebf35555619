//! The statements of the outbox.

/// Inserts the name if it is new, and returns its number.
pub(super) const REGISTER: &str = "
    WITH made AS (INSERT INTO {schema}.outboxes (name) VALUES ($1) ON CONFLICT (name) DO NOTHING RETURNING id)
    SELECT id FROM made UNION ALL SELECT id FROM {schema}.outboxes WHERE name = $1";

/// The beginning of a statement that is followed by its rows.
pub(super) const STAGE: &str = "
    INSERT INTO {schema}.outbox_messages (outbox_id, lane, message_id, destination, key, envelope, payload) VALUES ";

/// The same for many or large messages. In any transaction but the one with the number $8, it inserts nothing: after a
/// COMMIT of the handler there is none, and what this inserted would be committed at once. The order of the rows is
/// that of the arrays. Returns how many rows it has inserted.
pub(super) const STAGE_MANY: &str = "
    WITH staged AS (
        INSERT INTO {schema}.outbox_messages (outbox_id, lane, message_id, destination, key, envelope, payload)
        SELECT $1, new.lane, new.message_id, new.destination, new.key, new.envelope, new.payload
        FROM unnest($2::int2[], $3::uuid[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[]) WITH ORDINALITY
            AS new (lane, message_id, destination, key, envelope, payload, place)
        WHERE $8::text IS NULL
           OR pg_catalog.pg_current_xact_id_if_assigned()::text IS NOT DISTINCT FROM $8::text
        ORDER BY new.place
        RETURNING 1
    )
    SELECT count(*) FROM staged";
