-- idem, SQLite, migration 3: latest versions.
--
-- `Sqlite::connect` runs this file. To run it manually, in one transaction:
--
--   sqlite3 -bail orders.db 'BEGIN IMMEDIATE' '.read 0003_latest.sql' 'COMMIT'
--
-- For a prefix other than `idem_`, replace `"idem_` throughout.

-- The latest version of each entity that a handler has seen. idem deletes no row: without it, an old message of the entity
-- would count as the newest. An application that deletes an entity for good may delete its row.
CREATE TABLE "idem_latest_versions" (
    -- That of the consumer and handler, so that each handler sees each version.
    handler_id INTEGER NOT NULL,
    -- Encoded as a key is.
    entity     BLOB    NOT NULL CHECK (length(entity) BETWEEN 1 AND 255),
    version    INTEGER NOT NULL,
    PRIMARY KEY (handler_id, entity)
) STRICT, WITHOUT ROWID;

INSERT INTO "idem_migrations" (version, name, supports) VALUES (3, 'latest', 1);
