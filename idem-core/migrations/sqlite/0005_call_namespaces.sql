-- idem, SQLite, migration 5: namespaces of external calls.
--
-- `Sqlite::connect` runs this file. To run it manually, in one transaction:
--
--   sqlite3 -bail orders.db 'BEGIN IMMEDIATE' '.read 0005_call_namespaces.sql' 'COMMIT'
--
-- For a prefix other than `idem_`, replace `"idem_` throughout.

-- A random value for each handler that makes an external call, which the first worker in which it makes one inserts. The first
-- key of a message from a stream is a hash of this value and of the position of the message, so a message that comes again
-- behind a restored backup is called for under the same key. Never change a row: the provider recognizes a repeated call by
-- its key.
CREATE TABLE "idem_call_namespaces" (
    -- A handler that is renamed keeps its number, and so its value. If it is deleted and registered again, it gets another
    -- value. The command-line shell of SQLite follows foreign keys only after `PRAGMA foreign_keys = ON`:
    -- if you delete a handler without it, delete its row here, too.
    handler_id INTEGER PRIMARY KEY REFERENCES "idem_handlers" (id) ON DELETE CASCADE,
    namespace  BLOB    NOT NULL DEFAULT (randomblob(16))
) STRICT;

INSERT INTO "idem_migrations" (version, name, supports) VALUES (5, 'call_namespaces', 1);
