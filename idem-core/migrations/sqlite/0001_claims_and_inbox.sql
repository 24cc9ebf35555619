-- idem, SQLite, migration 1: claims and inbox.
--
-- `Sqlite::connect` runs this file. To run it manually, in one transaction:
--
--   sqlite3 -bail orders.db 'PRAGMA journal_mode = WAL' 'BEGIN IMMEDIATE' '.read 0001_claims_and_inbox.sql' 'COMMIT'
--
-- and connect with `.verify_only()`. For a prefix other than `idem_`, replace `"idem_` throughout.
-- All times are milliseconds since 1970 by the database's clock.

-- The applied migrations under this prefix. A version of idem that does not know a migration starts only if it knows
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

-- The claims. A row means that the database has taken over the message: either it is processed (processed_at is set),
-- or it is scheduled or dead in inbox_messages (processed_at is null, and the row is never pruned).
CREATE TABLE "idem_processed_messages" (
    handler_id   INTEGER NOT NULL,
    key          BLOB    NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    fingerprint  BLOB    NOT NULL CHECK (length(fingerprint) <= 255),
    processed_at INTEGER,
    PRIMARY KEY (handler_id, key)
) STRICT, WITHOUT ROWID;

-- The messages that run from the database, and the dead letters. Content is BLOB, so that no value can prevent a row
-- from being stored; read it with CAST(payload AS TEXT). The large columns come last, so that the others are read
-- without their overflow pages.
CREATE TABLE "idem_inbox_messages" (
    -- AUTOINCREMENT, so that an id that an operator has noted never refers to another message.
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at  INTEGER NOT NULL,
    -- When it runs, or when the lease of the worker that has taken it ends.
    due_at      INTEGER NOT NULL,
    died_at     INTEGER,
    -- How often the message was delivered, including the first time.
    deliveries   INTEGER NOT NULL DEFAULT 1,
    handler_id  INTEGER NOT NULL,
    -- Runs started since the last result, failed attempts, runs since the last result that lost their connection.
    starts      INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    breaks      INTEGER NOT NULL DEFAULT 0,
    -- Set while the row is taken.
    token       BLOB,
    state       TEXT    NOT NULL CHECK (state IN ('scheduled', 'dead')),
    -- Why it is dead.
    reason      TEXT,
    -- Empty if no key could be created: such a row owns no claim.
    key         BLOB    NOT NULL CHECK (length(key) <= 255),
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) <= 255),
    -- The error of the last attempt.
    error       TEXT    NOT NULL DEFAULT '',
    -- Source, message id, type, position and headers of the delivery, as JSON.
    envelope    BLOB    NOT NULL,
    payload     BLOB    NOT NULL,
    UNIQUE (handler_id, key, fingerprint),
    CHECK ((state = 'dead') = (reason IS NOT NULL AND died_at IS NOT NULL))
) STRICT;

-- Finds the rows that can be taken. Two indexes, because suspects are few and every poll asks for them. The columns
-- behind due_at let SQLite count without reading the rows.
CREATE INDEX "idem_inbox_messages_ordinary" ON "idem_inbox_messages" (handler_id, due_at, starts, breaks, state)
    WHERE state = 'scheduled' AND starts = 0 AND breaks <= 1;
CREATE INDEX "idem_inbox_messages_suspect" ON "idem_inbox_messages" (handler_id, due_at, starts, breaks, state)
    WHERE state = 'scheduled' AND (starts >= 1 OR breaks >= 2);

-- Finds the rows taken by a take whose response was lost.
CREATE INDEX "idem_inbox_messages_token" ON "idem_inbox_messages" (token) WHERE token IS NOT NULL;

-- Lists and counts the dead letters without reading the scheduled rows.
CREATE INDEX "idem_inbox_messages_dead" ON "idem_inbox_messages" (id, handler_id) WHERE state = 'dead';

-- The current pruner: one at a time, until `until`. `ping` also writes to the one row to test whether writing is
-- possible.
CREATE TABLE "idem_pruner" (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    token        BLOB,
    until        INTEGER NOT NULL DEFAULT 0,
    -- The last claim that the walk through the claims has read. There is no index on the date, which each message would
    -- have to pay for. A part of the table that was walked is worth a part of the time that a round may take, by which
    -- caught_up_to advances.
    handler_id   INTEGER NOT NULL DEFAULT 0,
    key          BLOB    NOT NULL DEFAULT x'',
    caught_up_to INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)),
    -- How many claims this round has read, and the last one.
    walked       INTEGER NOT NULL DEFAULT 0,
    size         INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "idem_pruner" (id) VALUES (1);

INSERT INTO "idem_migrations" (version, name, supports) VALUES (1, 'claims_and_inbox', 1);
