-- idem, SQLite, migration 6: former names of handlers.
--
-- `Sqlite::connect` runs this file. To run it manually, in one transaction:
--
--   sqlite3 -bail orders.db 'BEGIN IMMEDIATE' '.read 0006_former_names.sql' 'COMMIT'
--
-- For a prefix other than `idem_`, replace `"idem_` throughout.

-- The names that a handler had before the one in its row of `handlers`. A worker that has the handler under one of them, because
-- a release was rolled back, gets the same number.
CREATE TABLE "idem_former_names" (
    handler_id INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    PRIMARY KEY (handler_id, name)
) STRICT, WITHOUT ROWID;

INSERT INTO "idem_migrations" (version, name, supports) VALUES (6, 'former_names', 1);
