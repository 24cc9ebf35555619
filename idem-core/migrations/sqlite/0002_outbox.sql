-- idem, SQLite, migration 2: the outbox.
--
-- `Sqlite::connect` runs this file. To run it manually, in one transaction:
--
--   sqlite3 -bail orders.db 'BEGIN IMMEDIATE' '.read 0002_outbox.sql' 'COMMIT'
--
-- For a prefix other than `idem_`, replace `"idem_` throughout.

-- The name of an outbox as a small integer. To rename one, update its row.
CREATE TABLE "idem_outboxes" (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT    NOT NULL UNIQUE
) STRICT;

-- The messages that a relay has still to publish. A row is deleted once the broker has confirmed the message, so the
-- table is nearly empty while a relay runs. Content is BLOB, so that no value can prevent a row from being stored; read
-- it with CAST(payload AS TEXT).
CREATE TABLE "idem_outbox_messages" (
    -- The order in which messages were staged. AUTOINCREMENT, so that an id is never used again.
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    outbox_id   INTEGER NOT NULL,
    -- Always 0: one relay at a time publishes the messages of an outbox.
    lane        INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    -- Set after a failure: when it is published again.
    due_at      INTEGER,
    -- Failures that the broker has charged to this message.
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
CREATE INDEX "idem_outbox_messages_lane" ON "idem_outbox_messages" (outbox_id, lane, id);

-- Which relay publishes a lane, and until when.
CREATE TABLE "idem_outbox_lanes" (
    outbox_id    INTEGER NOT NULL,
    lane         INTEGER NOT NULL,
    token        BLOB,
    leased_until INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (outbox_id, lane)
) STRICT, WITHOUT ROWID;

-- The relays that run.
CREATE TABLE "idem_outbox_relays" (
    outbox_id   INTEGER NOT NULL,
    token       BLOB    NOT NULL,
    alive_until INTEGER NOT NULL,
    PRIMARY KEY (outbox_id, token)
) STRICT, WITHOUT ROWID;

-- The messages that a relay has given up: dead letters, which an operator replays or discards.
CREATE TABLE "idem_outbox_dead" (
    id          INTEGER PRIMARY KEY,
    outbox_id   INTEGER NOT NULL,
    lane        INTEGER NOT NULL,
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

INSERT INTO "idem_migrations" (version, name, supports) VALUES (2, 'outbox', 1);
