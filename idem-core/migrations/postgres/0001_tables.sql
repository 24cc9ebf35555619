-- idem, PostgreSQL, migration 1: the tables.
--
-- `Postgres::connect` runs this file. To run it manually, as a role that may create tables, in one transaction:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction \
--     -c 'CREATE SCHEMA idem_store' -c 'SET LOCAL search_path TO idem_store' -f 0001_tables.sql
--
-- The role that runs the workers then needs
--
--   GRANT USAGE ON SCHEMA idem_store TO worker;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA idem_store TO worker;
--
-- and connects with `.verify_only()`. All times are the database's clock.

-- The applied migrations of this schema. A version of idem that does not know a migration starts only if it knows the
-- migration in that row's `supports`.
CREATE TABLE migrations (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    -- The lowest migration that a version of idem must know to use the tables after this one.
    supports   int NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- (consumer, handler) as a small integer. To rename a consumer or a handler, update its row.
CREATE TABLE handlers (
    id             int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer       text NOT NULL,
    name           text NOT NULL,
    -- How long claims are kept after their message was processed; null: forever. A worker that starts writes the value
    -- of its store, and the greater one wins, because another version of the service may need it. Only an operator
    -- lowers it: UPDATE handlers SET retention = '3 days' WHERE consumer = 'billing'.
    retention      interval,
    -- The highest processed_at among the pruned claims of this handler; 1970 if none was pruned and it has processed messages
    -- without claims.
    pruned_through timestamptz,
    -- When a worker last had this handler. Each worker updates it every minute, so no index may include it.
    seen_at        timestamptz NOT NULL DEFAULT now(),
    UNIQUE (consumer, name)
);

-- The names that a handler had before the one in its row of `handlers`. A worker that has the handler under one of them, because
-- a release was rolled back, gets the same number.
CREATE TABLE former_names (
    handler_id int  NOT NULL,
    name       text NOT NULL,
    PRIMARY KEY (handler_id, name)
);

-- The claims. A row means that the database has taken over the message: either it is processed (processed_at is set),
-- or it is scheduled or dead in inbox_messages (processed_at is null, and the row is never pruned). There is no foreign
-- key to handlers: its check would lock the handler's row for every message.
CREATE TABLE processed_messages (
    processed_at timestamptz,
    handler_id   int   NOT NULL,
    key          bytea NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 255),
    fingerprint  bytea NOT NULL CHECK (octet_length(fingerprint) <= 255),
    -- Set in one claim of each batch: the transaction that inserted it, which only idem commits. Null takes no space in a row.
    batch_xid    xid8,
    PRIMARY KEY (handler_id, key)
);

-- The replies to requests. Each is written with its claim, and deleted with it. There is no foreign key: its check would cost each
-- request a lock. `headers` has a line for each header.
CREATE TABLE replies (
    handler_id int   NOT NULL,
    key        bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    status     int   NOT NULL,
    headers    bytea NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (handler_id, key)
);

-- Refuses the COMMIT of a handler that shares its transaction with other messages: their claims would be committed
-- although their handlers have not run. idem sets `idem.commit` to the transaction's number before it commits.
--
-- The trigger is deferred, so it fires at COMMIT. It also fires at SET CONSTRAINTS ALL IMMEDIATE, which a handler may
-- run. To tell the two apart, the trigger queues itself again as deferred. SET CONSTRAINTS ends anyway, but COMMIT
-- fires deferred triggers until none is left. So if it fires a second time within one command of the client, that
-- command is COMMIT, or contains SET CONSTRAINTS twice. So a refusal makes no dead letter: the message runs again, alone.
--
-- It needs only the worker's permissions, and runs only where a batch ends. No role needs EXECUTE on the function.
CREATE FUNCTION refuse_commit() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    touched bigint;
BEGIN
    IF current_setting('idem.commit', true) = NEW.batch_xid::text THEN
        RETURN NULL;
    END IF;
    -- A subscriber of logical replication writes the numbers of its publisher.
    IF EXISTS (SELECT FROM pg_stat_get_activity(pg_backend_pid()) WHERE backend_type LIKE 'logical replication%') THEN
        RETURN NULL;
    END IF;
    IF current_setting('idem.fired', true) IS DISTINCT FROM statement_timestamp()::text THEN
        PERFORM set_config('idem.fired', statement_timestamp()::text, true);
        EXECUTE format('SET CONSTRAINTS %I.%I DEFERRED', TG_TABLE_SCHEMA, TG_NAME);
        EXECUTE format('UPDATE %I.%I SET batch_xid = batch_xid WHERE handler_id = $1 AND key = $2',
                       TG_TABLE_SCHEMA, TG_TABLE_NAME)
            USING NEW.handler_id, NEW.key;
        GET DIAGNOSTICS touched = ROW_COUNT;
        IF touched > 0 THEN
            RETURN NULL;
        END IF;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'ID001', MESSAGE = 'idem: the handler ran COMMIT: let idem commit',
        HINT = 'Return Ok(()), and idem commits what the handler has written together with its claim.';
END $$;

CREATE CONSTRAINT TRIGGER refuse_commit AFTER INSERT OR UPDATE OF batch_xid ON processed_messages
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.batch_xid = pg_catalog.pg_current_xact_id()) EXECUTE FUNCTION refuse_commit();

-- Otherwise a handler that may set session_replication_role could commit.
ALTER TABLE processed_messages ENABLE ALWAYS TRIGGER refuse_commit;

-- Where the walk that deletes old claims continues: the block of processed_messages. There is no index on the date, which
-- each message would have to pay for. The row is made by the first walk. A part of the table that was walked is worth a
-- part of the time that a round may take, by which caught_up_to advances.
CREATE TABLE pruner (
    id           int PRIMARY KEY CHECK (id = 1),
    block        bigint      NOT NULL,
    caught_up_to timestamptz NOT NULL DEFAULT now()
);

-- The messages that run from the database, and the dead letters; the views `scheduled` and `dead_letters` show them. Keys and
-- payloads are bytea, and the envelope is json and not jsonb, so that no value can prevent a row from being stored.
CREATE TABLE inbox_messages (
    id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at       timestamptz NOT NULL DEFAULT now(),
    -- When it runs next.
    run_at           timestamptz NOT NULL DEFAULT now(),
    died_at          timestamptz,
    -- How many deliveries it stands for: a conflict, or a message without a key, that comes again is not stored twice.
    deliveries       bigint NOT NULL DEFAULT 1,
    handler_id       int    NOT NULL,
    -- Runs, or calls, that were started since the last result; failed attempts; runs since the last result that lost their
    -- connection.
    crash_count      int    NOT NULL DEFAULT 0,
    attempts         int    NOT NULL DEFAULT 0,
    lost_connections int    NOT NULL DEFAULT 0,
    -- `running` while a worker has it, and `calling` while its handler has to make its external call first, with or without a
    -- call under way.
    state            text   NOT NULL CHECK (state IN ('scheduled', 'running', 'calling', 'dead')),
    -- The token of the take by which a worker has it, and when another one may have it; null if none has it.
    locked_by        uuid,
    locked_until     timestamptz,
    -- Why it is dead.
    reason           text,
    -- Empty if no key could be created: such a row owns no claim.
    key              bytea  NOT NULL CHECK (octet_length(key) <= 255),
    fingerprint      bytea  NOT NULL CHECK (octet_length(fingerprint) <= 255),
    -- Source, message id, type, position and headers of the delivery, as JSON.
    envelope         json   NOT NULL,
    payload          bytea  NOT NULL,
    -- The error of the last attempt. A NUL, which text cannot have, is written as \0.
    error            text   NOT NULL DEFAULT '',
    -- The key under which the provider knows the external call; kept over all calls, unless an operator lets it call under
    -- another.
    provider_key     uuid,
    -- When the first call under this key was about to begin.
    called_at        timestamptz,
    -- The token of the take that wrote that time: if it is `locked_by`, the first call is about to be made.
    called_by        uuid,
    -- The name of the call that was about to begin.
    call_name        text,
    -- When a question to the provider first failed. Attempts are counted anew from there.
    asked_at         timestamptz,
    -- The answer, as JSON.
    answer           bytea,
    UNIQUE (handler_id, key, fingerprint),
    CHECK ((state = 'dead') = (reason IS NOT NULL AND died_at IS NOT NULL)),
    -- No call is made under a key that is not stored.
    CHECK (state <> 'calling' OR provider_key IS NOT NULL),
    -- A row whose call may have had an effect runs only with its answer: otherwise its handler could pay a second time.
    CONSTRAINT inbox_messages_called CHECK (called_at IS NULL OR answer IS NOT NULL OR state IN ('calling', 'dead'))
);

-- Finds the rows that can be taken, also those that a worker still has although its lease is over. Two indexes, because
-- orphaned rows are few and every poll asks for them.
CREATE INDEX inbox_messages_ordinary ON inbox_messages (handler_id, coalesce(locked_until, run_at))
    WHERE state IN ('scheduled', 'running') AND crash_count = 0 AND lost_connections <= 1;
CREATE INDEX inbox_messages_orphan ON inbox_messages (handler_id, coalesce(locked_until, run_at))
    WHERE state IN ('scheduled', 'running') AND (crash_count >= 1 OR lost_connections >= 2);

-- Finds the rows whose calls are due.
CREATE INDEX inbox_messages_calls ON inbox_messages (handler_id, coalesce(locked_until, run_at)) WHERE state = 'calling';

-- Lists and counts the dead letters of a handler without reading the scheduled rows, or those of other handlers.
CREATE INDEX inbox_messages_dead ON inbox_messages (handler_id, id) WHERE state = 'dead';

-- Counts the dead letters of which nobody knows whether their call had an effect. Nearly always empty.
CREATE INDEX inbox_messages_unresolved ON inbox_messages (handler_id, id) WHERE reason = 'unresolved';

-- A random value for each handler that makes an external call, which the first worker in which it makes one inserts. The first
-- key of a message from a stream is a hash of this value and of the position of the message, so a message that comes again
-- behind a restored backup is called for under the same key. Never change a row: the provider recognizes a repeated call by
-- its key. It is not made with the tables: copies of a database that was migrated before would all have the same one.
CREATE TABLE call_namespaces (
    -- A handler that is renamed keeps its number, and so its value. If it is deleted and registered again, it gets another
    -- value.
    handler_id int  PRIMARY KEY REFERENCES handlers (id) ON DELETE CASCADE,
    namespace  uuid NOT NULL DEFAULT gen_random_uuid()
);

-- The name of an outbox as a small integer. To rename one, update its row.
CREATE TABLE outboxes (
    id        int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text NOT NULL UNIQUE,
    -- Goes into the ids of messages, so that those of two schemas differ. Never change it: consumers recognize copies by
    -- their ids.
    namespace uuid NOT NULL DEFAULT gen_random_uuid(),
    -- The relay that publishes its messages, until when, and how long its lease was. One that ends later than so long from now
    -- is free: the clock was set back since.
    locked_by     uuid,
    locked_until  timestamptz NOT NULL DEFAULT '-infinity',
    lease         interval    NOT NULL DEFAULT '0',
    -- When a relay has last shown that it runs.
    relay_seen_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

-- The messages that a relay has still to publish. A row is deleted once the broker has confirmed the message, so the
-- table is nearly empty while a relay runs, and there is no other index. The view `outbox` shows them. Keys and
-- payloads are bytea, and the envelope is json and not jsonb, so that no value can prevent a row from being stored.
CREATE TABLE outbox_messages (
    outbox_id   int      NOT NULL,
    -- The order in which messages were staged.
    id          bigint GENERATED ALWAYS AS IDENTITY,
    message_id  uuid     NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    -- Set after a failure: when it is published again.
    run_at      timestamptz,
    -- Failures that the broker has counted against this message.
    attempts    int      NOT NULL DEFAULT 0,
    destination text     NOT NULL,
    -- Empty if it has none.
    key         bytea    NOT NULL DEFAULT '' CHECK (octet_length(key) <= 255),
    -- Event type, content type and headers, as JSON.
    envelope    json     NOT NULL,
    payload     bytea    NOT NULL,
    -- The error of the last attempt.
    error       text     NOT NULL DEFAULT '',
    PRIMARY KEY (outbox_id, id)
);

-- The messages that a relay has given up: dead letters, which an operator replays or discards.
CREATE TABLE outbox_dead (
    outbox_id   int      NOT NULL,
    -- Not that of the message that waited, which may be given again after a failover.
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  uuid     NOT NULL,
    created_at  timestamptz NOT NULL,
    died_at     timestamptz NOT NULL DEFAULT now(),
    attempts    int      NOT NULL,
    destination text     NOT NULL,
    key         bytea    NOT NULL,
    envelope    json     NOT NULL,
    payload     bytea    NOT NULL,
    error       text     NOT NULL
);

-- What operators have done: one row for each message, written by the statement that changes the message. Deleted after 90 days.
CREATE TABLE operations (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    -- The same in all rows of one command.
    command    uuid   NOT NULL,
    -- `replayed`, `replayed by force`, `replayed under the key ..`, `replayed for new keys`, `discarded`, `answered`,
    -- `called again`, `staged again`, `forgotten`.
    action     text   NOT NULL,
    -- Who has done it, as the command or the page said, and the role that the database knows.
    actor      text   NOT NULL,
    role       text   NOT NULL DEFAULT session_user,
    -- The handler, or the outbox, and the row. A message that was forgotten has none.
    handler_id int,
    outbox_id  int,
    row_id     bigint,
    -- The key, the reason, the attempts and the error that the row had before.
    key        bytea  NOT NULL,
    reason     text,
    attempts   int,
    error      text
);

-- Finds what was done to a message.
CREATE INDEX operations_key ON operations (handler_id, key);

-- The workers and relays of each process, for people: no message depends on it. A process writes all its rows every ten seconds,
-- in one statement.
CREATE TABLE workers (
    -- Random for each worker and relay.
    instance   uuid   NOT NULL,
    kind       text   NOT NULL CHECK (kind IN ('worker', 'relay')),
    -- The consumer, or the outbox.
    name       text   NOT NULL,
    host       text   NOT NULL,
    pid        int    NOT NULL,
    -- That of the program.
    version    text   NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT now(),
    -- What it has processed in each of the last sixty minutes, the current one first, and what holds it up.
    report     json   NOT NULL,
    PRIMARY KEY (instance, kind, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Four tables constantly gain and lose rows. By default, autovacuum waits until a fifth of a table is dead, which is
-- days of claims (PostgreSQL manual, 20.10).
ALTER TABLE processed_messages SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.02
);
ALTER TABLE replies SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.02
);
ALTER TABLE inbox_messages SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);
ALTER TABLE outbox_messages SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.02
);

-- ===== for people =====

-- A payload as text, or null if it is none, so that no row makes a view fail.
CREATE FUNCTION as_text(value bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN convert_from(value, 'UTF8');
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;

-- A member of an envelope as text, or null: JSON may have a character that text cannot have (\u0000).
CREATE FUNCTION member(envelope json, name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN envelope ->> name;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;

-- A key as idem's log and its operator show it: its text, a UUID, `(part, part)` for a key of several parts, each of which has
-- its length in front of it, and otherwise its bytes in hexadecimal.
CREATE FUNCTION key_text(key bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parts bytea[] := ARRAY[key];
    part  bytea;
    shown text;
    texts text[];
    place int := 0;
BEGIN
    -- First the key as a whole, then its parts.
    FOR round IN 1..2 LOOP
        texts := '{}';
        FOREACH part IN ARRAY parts LOOP
            BEGIN
                shown := convert_from(part, 'UTF8');
            EXCEPTION WHEN others THEN
                shown := NULL;
            END;
            IF shown IS NULL AND length(part) = 16 AND get_byte(part, 6) >> 4 BETWEEN 1 AND 8 AND get_byte(part, 8) >> 6 = 2 THEN
                shown := encode(part, 'hex')::uuid::text;
            END IF;
            EXIT WHEN shown IS NULL OR shown ~ '[[:cntrl:]]';
            texts := texts || shown;
        END LOOP;
        IF cardinality(texts) = cardinality(parts) THEN
            RETURN CASE round WHEN 1 THEN texts[1] ELSE '(' || array_to_string(texts, ', ') || ')' END;
        END IF;
        parts := '{}';
        WHILE place < length(key) LOOP
            part := substr(key, place + 2, get_byte(key, place));
            EXIT WHEN length(part) = 0 OR length(part) <> get_byte(key, place);
            parts := parts || part;
            place := place + 1 + length(part);
        END LOOP;
        EXIT WHEN place <> length(key) OR cardinality(parts) < 2;
    END LOOP;
    RETURN '0x' || encode(key, 'hex');
END $$;

-- The messages that wait, run, or wait for the result of an external call. `locked_until` is when another worker may have one
-- that a worker has now.
CREATE VIEW scheduled AS
SELECT i.id, h.consumer, h.name AS handler, key_text(i.key) AS key, i.state, i.run_at, i.locked_until, i.locked_by, i.attempts,
       i.crash_count, i.lost_connections, i.error, i.deliveries, i.created_at, member(i.envelope, 'event_type') AS event_type,
       i.call_name, i.provider_key, i.called_at, as_text(i.answer) AS answer, i.envelope, as_text(i.payload) AS payload
FROM inbox_messages AS i LEFT JOIN handlers AS h ON h.id = i.handler_id WHERE i.state <> 'dead';

-- The dead letters.
CREATE VIEW dead_letters AS
SELECT i.id, h.consumer, h.name AS handler, key_text(i.key) AS key, i.reason, i.error, i.died_at, i.attempts, i.crash_count,
       i.lost_connections, i.deliveries, i.created_at, member(i.envelope, 'event_type') AS event_type, i.call_name,
       i.provider_key, i.called_at, as_text(i.answer) AS answer, i.envelope, as_text(i.payload) AS payload
FROM inbox_messages AS i LEFT JOIN handlers AS h ON h.id = i.handler_id WHERE i.state = 'dead';

-- The messages that a relay has still to publish, and those that it has given up.
CREATE VIEW outbox AS
SELECT m.id, o.name AS outbox, 'waiting' AS state, m.destination, key_text(m.key) AS key, m.message_id, m.attempts, m.error,
       m.created_at, m.run_at, NULL::timestamptz AS died_at, member(m.envelope, 'event_type') AS event_type, m.envelope,
       as_text(m.payload) AS payload
FROM outbox_messages AS m LEFT JOIN outboxes AS o ON o.id = m.outbox_id
UNION ALL
SELECT m.id, o.name, 'dead', m.destination, key_text(m.key), m.message_id, m.attempts, m.error, m.created_at, NULL, m.died_at,
       member(m.envelope, 'event_type'), m.envelope, as_text(m.payload)
FROM outbox_dead AS m LEFT JOIN outboxes AS o ON o.id = m.outbox_id;

INSERT INTO migrations (version, name, supports) VALUES (1, 'tables', 1);
