-- idem, PostgreSQL, migration 3: latest versions.
--
-- `Postgres::connect` runs this file. To run it manually, as the owner of the schema, in one transaction:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -c 'SET LOCAL search_path TO idem_store' -f 0003_latest.sql
--
-- The role that runs workers with handlers that take `Latest` then needs the grants of migration 1 again, for the new
-- table. Other workers need neither this table nor the grants:
--
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA idem_store TO worker;

-- The latest version of each entity that a handler has seen. idem deletes no row: without it, an old message of the entity
-- would count as the newest. An application that deletes an entity for good may delete its row.
CREATE TABLE latest_versions (
    version    bigint NOT NULL,
    -- That of the consumer and handler, so that each handler sees each version.
    handler_id int    NOT NULL,
    -- Encoded as a key is.
    entity     bytea  NOT NULL CHECK (octet_length(entity) BETWEEN 1 AND 255),
    PRIMARY KEY (handler_id, entity)
);

-- An update leaves the index alone if the page of its row has room for the new one (PostgreSQL manual, 65.7). By default,
-- autovacuum waits until a fifth of the table is dead.
ALTER TABLE latest_versions SET (
    fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 10000,
    autovacuum_analyze_scale_factor = 0.02
);

INSERT INTO migrations (version, name, supports) VALUES (3, 'latest', 1);
