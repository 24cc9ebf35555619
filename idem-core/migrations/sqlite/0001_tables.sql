-- idem, SQLite, migration 1: the tables.
--
-- `Sqlite::connect` runs this file. To run it manually, in one transaction:
--
--   sqlite3 -bail orders.db 'PRAGMA journal_mode = WAL' 'BEGIN IMMEDIATE' '.read 0001_tables.sql' 'COMMIT'
--
-- and connect with `.verify_only()`.
-- All times are milliseconds since 1970 by the database's clock.

-- The applied migrations. A version of idem that does not know a migration starts only if it knows
-- the migration in that row's `supports`.
CREATE TABLE "idem_migrations" (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    -- The lowest migration that a version of idem must know to use the tables after this one.
    supports   INTEGER NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER))
) STRICT;

-- (consumer, handler) as a small integer. To rename a consumer or a handler, update its row.
CREATE TABLE "idem_handlers" (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer       TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    -- How many milliseconds claims are kept after their message was processed; null: forever. A worker that starts
    -- writes the value of its store, and the greater one wins, because another version of the service may need it. Only
    -- an operator lowers it: UPDATE idem_handlers SET retention = 3 * 86400000 WHERE consumer = 'billing'.
    retention      INTEGER,
    -- The highest processed_at among the pruned claims of this handler; 0 if none was pruned and it has processed messages
    -- without claims.
    pruned_through INTEGER,
    -- When a worker last had this handler. Each worker updates it every minute.
    seen_at        INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)),
    UNIQUE (consumer, name)
) STRICT;

-- The names that a handler had before the one in its row of `handlers`. A worker that has the handler under one of them, because
-- a release was rolled back, gets the same number.
CREATE TABLE "idem_former_names" (
    handler_id INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    PRIMARY KEY (handler_id, name)
) STRICT, WITHOUT ROWID;

-- The claims. A row means that the database has taken over the message: either it is processed (processed_at is set),
-- or it is scheduled or dead in inbox_messages (processed_at is null, and the row is never pruned).
CREATE TABLE "idem_processed_messages" (
    handler_id   INTEGER NOT NULL,
    key          BLOB    NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    fingerprint  BLOB    NOT NULL CHECK (length(fingerprint) <= 255),
    processed_at INTEGER,
    PRIMARY KEY (handler_id, key)
) STRICT, WITHOUT ROWID;

-- The replies to requests. Each is written with its claim, and deleted with it. `headers` has a line for each header.
CREATE TABLE "idem_replies" (
    handler_id INTEGER NOT NULL,
    key        BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    status     INTEGER NOT NULL,
    headers    BLOB    NOT NULL,
    body       BLOB    NOT NULL,
    PRIMARY KEY (handler_id, key)
) STRICT;

-- The messages that run from the database, and the dead letters; the views `scheduled` and `dead_letters` show them. Content is
-- BLOB, so that no value can prevent a row from being stored. The large columns come last, so that the others are read
-- without their overflow pages.
CREATE TABLE "idem_inbox_messages" (
    -- AUTOINCREMENT, so that an id that an operator has noted never refers to another message.
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at       INTEGER NOT NULL,
    -- When it runs next.
    run_at           INTEGER NOT NULL,
    died_at          INTEGER,
    -- How many deliveries it stands for: a conflict, or a message without a key, that comes again is not stored twice.
    deliveries       INTEGER NOT NULL DEFAULT 1,
    handler_id       INTEGER NOT NULL,
    -- Runs, or calls, that were started since the last result; failed attempts; runs since the last result that lost their
    -- connection.
    crash_count      INTEGER NOT NULL DEFAULT 0,
    attempts         INTEGER NOT NULL DEFAULT 0,
    lost_connections INTEGER NOT NULL DEFAULT 0,
    -- `running` while a worker has it, and `calling` while its handler has to make its external call first, with or without a
    -- call under way.
    state            TEXT    NOT NULL CHECK (state IN ('scheduled', 'running', 'calling', 'dead')),
    -- The token of the take by which a worker has it, and when another one may have it; null if none has it.
    locked_by        BLOB,
    locked_until     INTEGER,
    -- Why it is dead.
    reason           TEXT,
    -- Empty if no key could be created: such a row owns no claim.
    key              BLOB    NOT NULL CHECK (length(key) <= 255),
    fingerprint      BLOB    NOT NULL CHECK (length(fingerprint) <= 255),
    -- The key under which the provider knows the external call; kept over all calls, unless an operator lets it call under
    -- another.
    provider_key     BLOB,
    -- When the first call under this key was about to begin.
    called_at        INTEGER,
    -- The token of the take that wrote that time: if it is `locked_by`, the first call is about to be made.
    called_by        BLOB,
    -- The name of the call that was about to begin.
    call_name        TEXT,
    -- When a question to the provider first failed. Attempts are counted anew from there.
    asked_at         INTEGER,
    -- The error of the last attempt.
    error            TEXT    NOT NULL DEFAULT '',
    -- The answer of the call, as JSON.
    answer           BLOB,
    -- Source, message id, type, position and headers of the delivery, as JSON.
    envelope         BLOB    NOT NULL,
    payload          BLOB    NOT NULL,
    UNIQUE (handler_id, key, fingerprint),
    CHECK ((state = 'dead') = (reason IS NOT NULL AND died_at IS NOT NULL)),
    -- No call is made under a key that is not stored.
    CHECK (state <> 'calling' OR provider_key IS NOT NULL),
    -- A row whose call may have had an effect runs only with its answer: otherwise its handler could pay a second time.
    CHECK (called_at IS NULL OR answer IS NOT NULL OR state IN ('calling', 'dead'))
) STRICT;

-- Finds the rows that can be taken, also those that a worker still has although its lease is over. Two indexes, because
-- orphaned rows are few and every poll asks for them. The columns behind the time let SQLite count without reading the rows.
CREATE INDEX "idem_inbox_messages_ordinary" ON "idem_inbox_messages"
    (handler_id, coalesce(locked_until, run_at), crash_count, lost_connections, state)
    WHERE state IN ('scheduled', 'running') AND crash_count = 0 AND lost_connections <= 1;
CREATE INDEX "idem_inbox_messages_orphan" ON "idem_inbox_messages"
    (handler_id, coalesce(locked_until, run_at), crash_count, lost_connections, state)
    WHERE state IN ('scheduled', 'running') AND (crash_count >= 1 OR lost_connections >= 2);

-- Finds the rows whose calls are due.
CREATE INDEX "idem_inbox_messages_calls" ON "idem_inbox_messages" (handler_id, coalesce(locked_until, run_at), state)
    WHERE state = 'calling';

-- Finds the rows of a fetch whose response was lost.
CREATE INDEX "idem_inbox_messages_locked" ON "idem_inbox_messages" (locked_by) WHERE locked_by IS NOT NULL;

-- Lists and counts the dead letters of a handler without reading the scheduled rows, or those of other handlers.
CREATE INDEX "idem_inbox_messages_dead" ON "idem_inbox_messages" (handler_id, id) WHERE state = 'dead';

-- Counts the dead letters of which nobody knows whether their call had an effect. Nearly always empty.
CREATE INDEX "idem_inbox_messages_unresolved" ON "idem_inbox_messages" (handler_id, id) WHERE reason = 'unresolved';

-- A random value for each handler that makes an external call, which the first worker in which it makes one inserts. The first
-- key of a message from a stream is a hash of this value and of the position of the message, so a message that comes again
-- behind a restored backup is called for under the same key. Never change a row: the provider recognizes a repeated call by
-- its key. It is not made with the tables: copies of a database that was migrated before would all have the same one.
CREATE TABLE "idem_call_namespaces" (
    -- A handler that is renamed keeps its number, and so its value. If it is deleted and registered again, it gets another
    -- value. The command-line shell of SQLite follows foreign keys only after `PRAGMA foreign_keys = ON`:
    -- if you delete a handler without it, delete its row here, too.
    handler_id INTEGER PRIMARY KEY REFERENCES "idem_handlers" (id) ON DELETE CASCADE,
    namespace  BLOB    NOT NULL DEFAULT (randomblob(16))
) STRICT;

-- The current pruner: one at a time, until `locked_until`. `ping` also writes to the one row to test whether writing is
-- possible.
CREATE TABLE "idem_pruner" (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    locked_until INTEGER NOT NULL DEFAULT 0,
    -- The last claim that the walk through the claims has read. There is no index on the date, which each message would
    -- have to pay for.
    handler_id   INTEGER NOT NULL DEFAULT 0,
    key          BLOB    NOT NULL DEFAULT x'',
    -- How many claims this round has read, and the last one.
    walked       INTEGER NOT NULL DEFAULT 0,
    size         INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "idem_pruner" (id) VALUES (1);

-- The name of an outbox as a small integer. To rename one, update its row.
CREATE TABLE "idem_outboxes" (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT    NOT NULL UNIQUE,
    -- Goes into the ids of messages, so that those of two files differ. Never change it: consumers recognize copies by
    -- their ids.
    namespace BLOB    NOT NULL,
    -- The relay that publishes its messages, until when, and how long its lease was. One that ends later than so long from now
    -- is free: the clock was set back since.
    locked_by     BLOB,
    locked_until  INTEGER NOT NULL DEFAULT 0,
    lease         INTEGER NOT NULL DEFAULT 0,
    -- When a relay has last shown that it runs; 0: never.
    relay_seen_at INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The messages that a relay has still to publish. A row is deleted once the broker has confirmed the message, so the
-- table is nearly empty while a relay runs. Content is BLOB, so that no value can prevent a row from being stored; read
-- it with CAST(payload AS TEXT).
CREATE TABLE "idem_outbox_messages" (
    -- The order in which messages were staged. AUTOINCREMENT, so that an id is never used again.
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox_id   INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- Set after a failure: when it is published again.
    run_at      INTEGER,
    -- Failures that the broker has counted against this message.
    attempts    INTEGER NOT NULL DEFAULT 0,
    -- The error of the last attempt.
    error       TEXT    NOT NULL DEFAULT '',
    destination TEXT    NOT NULL,
    -- Empty if it has none.
    key         BLOB    NOT NULL CHECK (length(key) <= 255),
    -- Event type, content type and headers, as JSON.
    envelope    BLOB    NOT NULL,
    payload     BLOB    NOT NULL
) STRICT;
CREATE INDEX "idem_outbox_messages_outbox" ON "idem_outbox_messages" (outbox_id, id);

-- The messages that a relay has given up: dead letters, which an operator replays or discards.
CREATE TABLE "idem_outbox_dead" (
    -- Not that of the message that waited, which may be given again in a file that was restored.
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox_id   INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    died_at     INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    error       TEXT    NOT NULL,
    destination TEXT    NOT NULL,
    key         BLOB    NOT NULL,
    envelope    BLOB    NOT NULL,
    payload     BLOB    NOT NULL
) STRICT;

-- What operators have done: one row for each message, written in the transaction that changes the message. Deleted after 90 days.
CREATE TABLE "idem_operations" (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)),
    -- The same in all rows of one command.
    command    BLOB    NOT NULL,
    -- `replayed`, `replayed by force`, `replayed under the key ..`, `replayed for new keys`, `discarded`, `answered`,
    -- `called again`, `staged again`, `forgotten`.
    action     TEXT    NOT NULL,
    -- Who has done it, as the command or the page said. SQLite knows no roles.
    actor      TEXT    NOT NULL,
    role       TEXT    NOT NULL DEFAULT '',
    -- The handler, or the outbox, and the row. A message that was forgotten has none.
    handler_id INTEGER,
    outbox_id  INTEGER,
    row_id     INTEGER,
    -- The key, the reason, the attempts and the error that the row had before.
    key        BLOB    NOT NULL,
    reason     TEXT,
    attempts   INTEGER,
    error      TEXT
) STRICT;

-- Finds what was done to a message.
CREATE INDEX "idem_operations_key" ON "idem_operations" (handler_id, key);

-- The workers and relays of each process, for people: no message depends on it. A process writes all its rows every ten seconds,
-- in one statement.
CREATE TABLE "idem_workers" (
    -- Random for each worker and relay.
    instance   BLOB    NOT NULL,
    kind       TEXT    NOT NULL CHECK (kind IN ('worker', 'relay')),
    -- The consumer, or the outbox.
    name       TEXT    NOT NULL,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    -- That of the program.
    version    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)),
    -- What it has processed in each of the last sixty minutes, the current one first, and what holds it up, as JSON.
    report     TEXT    NOT NULL,
    PRIMARY KEY (instance, kind, name)
) STRICT, WITHOUT ROWID;

-- ===== for people =====
--
-- SQLite has no functions of its own: a key or a payload that is no text is shown as what its bytes are.

-- The messages that wait, run, or wait for the result of an external call. `locked_until` is when another worker may have one
-- that a worker has now.
CREATE VIEW "idem_scheduled" AS
SELECT i.id, h.consumer, h.name AS handler, CAST(i.key AS TEXT) AS key, i.state,
    strftime('%Y-%m-%d %H:%M:%f', i.run_at / 1000.0, 'unixepoch') AS run_at,
    strftime('%Y-%m-%d %H:%M:%f', i.locked_until / 1000.0, 'unixepoch') AS locked_until,
    hex(i.locked_by) AS locked_by, i.attempts, i.crash_count, i.lost_connections, i.error, i.deliveries,
    strftime('%Y-%m-%d %H:%M:%f', i.created_at / 1000.0, 'unixepoch') AS created_at,
    CASE WHEN json_valid(CAST(i.envelope AS TEXT)) THEN CAST(i.envelope AS TEXT) ->> 'event_type' END AS event_type,
    i.call_name, hex(i.provider_key) AS provider_key,
    strftime('%Y-%m-%d %H:%M:%f', i.called_at / 1000.0, 'unixepoch') AS called_at, CAST(i.answer AS TEXT) AS answer,
    CAST(i.envelope AS TEXT) AS envelope, CAST(i.payload AS TEXT) AS payload
FROM "idem_inbox_messages" AS i LEFT JOIN "idem_handlers" AS h ON h.id = i.handler_id WHERE i.state <> 'dead';

-- The dead letters.
CREATE VIEW "idem_dead_letters" AS
SELECT i.id, h.consumer, h.name AS handler, CAST(i.key AS TEXT) AS key, i.reason, i.error,
    strftime('%Y-%m-%d %H:%M:%f', i.died_at / 1000.0, 'unixepoch') AS died_at,
    i.attempts, i.crash_count, i.lost_connections, i.deliveries,
    strftime('%Y-%m-%d %H:%M:%f', i.created_at / 1000.0, 'unixepoch') AS created_at,
    CASE WHEN json_valid(CAST(i.envelope AS TEXT)) THEN CAST(i.envelope AS TEXT) ->> 'event_type' END AS event_type,
    i.call_name, hex(i.provider_key) AS provider_key,
    strftime('%Y-%m-%d %H:%M:%f', i.called_at / 1000.0, 'unixepoch') AS called_at, CAST(i.answer AS TEXT) AS answer,
    CAST(i.envelope AS TEXT) AS envelope, CAST(i.payload AS TEXT) AS payload
FROM "idem_inbox_messages" AS i LEFT JOIN "idem_handlers" AS h ON h.id = i.handler_id WHERE i.state = 'dead';

-- The messages that a relay has still to publish, and those that it has given up.
CREATE VIEW "idem_outbox" AS
SELECT m.id, o.name AS outbox, 'waiting' AS state, m.destination, CAST(m.key AS TEXT) AS key, hex(m.message_id) AS message_id,
    m.attempts, m.error, strftime('%Y-%m-%d %H:%M:%f', m.created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%d %H:%M:%f', m.run_at / 1000.0, 'unixepoch') AS run_at, NULL AS died_at,
    CASE WHEN json_valid(CAST(m.envelope AS TEXT)) THEN CAST(m.envelope AS TEXT) ->> 'event_type' END AS event_type,
    CAST(m.envelope AS TEXT) AS envelope,
    CAST(m.payload AS TEXT) AS payload
FROM "idem_outbox_messages" AS m LEFT JOIN "idem_outboxes" AS o ON o.id = m.outbox_id
UNION ALL
SELECT m.id, o.name, 'dead', m.destination, CAST(m.key AS TEXT), hex(m.message_id), m.attempts, m.error,
    strftime('%Y-%m-%d %H:%M:%f', m.created_at / 1000.0, 'unixepoch'), NULL,
    strftime('%Y-%m-%d %H:%M:%f', m.died_at / 1000.0, 'unixepoch'),
    CASE WHEN json_valid(CAST(m.envelope AS TEXT)) THEN CAST(m.envelope AS TEXT) ->> 'event_type' END,
    CAST(m.envelope AS TEXT), CAST(m.payload AS TEXT)
FROM "idem_outbox_dead" AS m LEFT JOIN "idem_outboxes" AS o ON o.id = m.outbox_id;

INSERT INTO "idem_migrations" (version, name, supports) VALUES (1, 'tables', 1);
