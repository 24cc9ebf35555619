-- idem, PostgreSQL, migration 2: the outbox.
--
-- `Postgres::connect` runs this file. To run it manually, as the owner of the schema, in one transaction:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -c 'SET LOCAL search_path TO idem_store' -f 0002_outbox.sql
--
-- The role that runs relays, or workers whose handlers stage, then needs the grants of migration 1 again, for the new
-- tables. Other workers need neither these tables nor the grants:
--
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA idem_store TO worker;

-- The name of an outbox as a small integer. To rename one, update its row.
CREATE TABLE outboxes (
    id        int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text NOT NULL UNIQUE,
    -- Goes into the ids of messages, so that those of two schemas differ. Never change it: consumers recognize copies by
    -- their ids.
    namespace uuid NOT NULL DEFAULT gen_random_uuid()
);

-- The messages that a relay has still to publish. A row is deleted once the broker has confirmed the message, so the
-- table is nearly empty while a relay runs, and there is no other index. Content is bytea, so that no value can prevent
-- a row from being stored; read it with convert_from(payload, 'UTF8').
CREATE TABLE outbox_messages (
    outbox_id   int      NOT NULL,
    -- 0 to 63: a hash of the key. Messages without a key are spread.
    lane        smallint NOT NULL,
    -- The order in which messages were staged.
    id          bigint GENERATED ALWAYS AS IDENTITY,
    message_id  uuid     NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- Set after a failure: when it is published again.
    due_at      timestamptz,
    -- Failures that the broker has charged to this message.
    attempts    int      NOT NULL DEFAULT 0,
    destination bytea    NOT NULL,
    -- Empty if it has none.
    key         bytea    NOT NULL DEFAULT '' CHECK (octet_length(key) <= 255),
    -- Event type, content type and headers, as JSON.
    envelope    bytea    NOT NULL,
    payload     bytea    NOT NULL,
    -- The error of the last attempt.
    error       bytea    NOT NULL DEFAULT '',
    PRIMARY KEY (outbox_id, lane, id)
);

-- Which relay publishes a lane, and until when. One row for each lane, not a lock for each message.
CREATE TABLE outbox_lanes (
    outbox_id    int         NOT NULL,
    lane         smallint    NOT NULL,
    token        uuid,
    leased_until timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (outbox_id, lane)
);

-- The relays that run, so that each takes a fair share of the lanes.
CREATE TABLE outbox_relays (
    outbox_id   int         NOT NULL,
    token       uuid        NOT NULL,
    alive_until timestamptz NOT NULL,
    PRIMARY KEY (outbox_id, token)
);

-- The messages that a relay has given up: dead letters, which an operator replays or discards.
CREATE TABLE outbox_dead (
    outbox_id   int      NOT NULL,
    lane        smallint NOT NULL,
    -- Not that of the message that waited, which may be given again after a failover.
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  uuid     NOT NULL,
    created_at  timestamptz NOT NULL,
    died_at     timestamptz NOT NULL DEFAULT now(),
    attempts    int      NOT NULL,
    destination bytea    NOT NULL,
    key         bytea    NOT NULL,
    envelope    bytea    NOT NULL,
    payload     bytea    NOT NULL,
    error       bytea    NOT NULL
);

-- The table constantly gains and loses rows.
ALTER TABLE outbox_messages SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

INSERT INTO migrations (version, name, supports) VALUES (2, 'outbox', 1);
