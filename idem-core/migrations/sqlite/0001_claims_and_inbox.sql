-- idem, SQLite, migration 1: claims and inbox.
--
-- `Sqlite::connect` runs this file by itself. To run it by hand, in one transaction:
--
--   sqlite3 -bail orders.db 'PRAGMA journal_mode = WAL' 'BEGIN IMMEDIATE' '.read 0001_claims_and_inbox.sql' 'COMMIT'
--
-- and connect with `.verify_only()`. For a prefix other than `idem_`, replace `"idem_` throughout.
-- All times are milliseconds since 1970 by the database's clock.

-- What has been applied under this prefix. A version of idem that does not know a migration starts only where its
-- `supports` is a migration that it knows.
CREATE TABLE "idem_migrations" (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    -- The lowest migration that an idem must know which uses the tables after this one.
    supports   INTEGER NOT NULL,
    applied_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER))
) STRICT;

-- (consumer, handler) as a small integer. To rename a consumer or a handler, update its row.
CREATE TABLE "idem_handlers" (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer       TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    -- For how many milliseconds claims are kept after their message was processed; null: for ever. A worker that starts
    -- writes the value of its store, and the greater one wins, since the other version of a service may need it. Only an
    -- operator lowers it: UPDATE idem_handlers SET retention = 3 * 86400000 WHERE consumer = 'billing'.
    retention      INTEGER,
    -- The highest processed_at among the claims of this handler that were pruned.
    pruned_through INTEGER,
    -- When a worker had this handler last. Each worker writes it every minute.
    seen_at        INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)),
    UNIQUE (consumer, name)
) STRICT;

-- The claims. A row means that the database has taken the message over: it is processed (processed_at is set), or it
-- waits or is dead in inbox_messages (processed_at is null, and the row is never pruned).
CREATE TABLE "idem_processed_messages" (
    handler_id   INTEGER NOT NULL,
    key          BLOB    NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    fingerprint  BLOB    NOT NULL CHECK (length(fingerprint) <= 255),
    processed_at INTEGER,
    PRIMARY KEY (handler_id, key)
) STRICT, WITHOUT ROWID;

-- Finds what is to be pruned, of each handler by its own retention.
CREATE INDEX "idem_processed_messages_dated" ON "idem_processed_messages" (handler_id, processed_at)
    WHERE processed_at IS NOT NULL;

-- What runs from the database, and the dead letters. Content is BLOB, so that nothing in it can block the storing; read
-- it with CAST(payload AS TEXT). The large columns come last, so that the others are read without their overflow pages.
CREATE TABLE "idem_inbox_messages" (
    -- AUTOINCREMENT, since an operator who has noted a number must never meet another message under it.
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at  INTEGER NOT NULL,
    -- When it runs, or when the lease of whoever has taken it ends.
    due_at      INTEGER NOT NULL,
    died_at     INTEGER,
    -- How often it was seen, the first time included.
    sightings   INTEGER NOT NULL DEFAULT 1,
    handler_id  INTEGER NOT NULL,
    -- Runs begun since the last outcome, attempts that failed, runs since the last outcome that lost their connection.
    starts      INTEGER NOT NULL DEFAULT 0,
    attempts    INTEGER NOT NULL DEFAULT 0,
    breaks      INTEGER NOT NULL DEFAULT 0,
    -- Set while it is taken.
    token       BLOB,
    state       TEXT    NOT NULL CHECK (state IN ('parked', 'dead')),
    -- Why it is dead.
    reason      TEXT,
    -- Empty where no key could be made: such a row owns no claim.
    key         BLOB    NOT NULL CHECK (length(key) <= 255),
    fingerprint BLOB    NOT NULL CHECK (length(fingerprint) <= 255),
    -- What the last attempt said.
    error       TEXT    NOT NULL DEFAULT '',
    -- Source, message id, type, position and headers of the delivery, as JSON.
    envelope    BLOB    NOT NULL,
    payload     BLOB    NOT NULL,
    UNIQUE (handler_id, key, fingerprint),
    CHECK ((state = 'dead') = (reason IS NOT NULL AND died_at IS NOT NULL))
) STRICT;

-- Finds what can be taken. Two indexes, because suspects are few and are asked for at each poll. The columns behind
-- due_at let SQLite count without reading the rows.
CREATE INDEX "idem_inbox_messages_ordinary" ON "idem_inbox_messages" (handler_id, due_at, starts, breaks, state)
    WHERE state = 'parked' AND starts = 0 AND breaks <= 1;
CREATE INDEX "idem_inbox_messages_suspect" ON "idem_inbox_messages" (handler_id, due_at, starts, breaks, state)
    WHERE state = 'parked' AND (starts >= 1 OR breaks >= 2);

-- Finds what a take has taken whose answer was lost.
CREATE INDEX "idem_inbox_messages_token" ON "idem_inbox_messages" (token) WHERE token IS NOT NULL;

-- Lists and counts the dead letters without reading what is parked.
CREATE INDEX "idem_inbox_messages_dead" ON "idem_inbox_messages" (id, handler_id) WHERE state = 'dead';

-- Who prunes: one at a time, until then. The one row is also what `ping` writes to, to see whether writing is possible.
CREATE TABLE "idem_pruner" (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    token BLOB,
    until INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "idem_pruner" (id) VALUES (1);

INSERT INTO "idem_migrations" (version, name, supports) VALUES (1, 'claims_and_inbox', 1);
