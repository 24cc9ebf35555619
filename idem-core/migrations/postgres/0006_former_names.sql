-- idem, PostgreSQL, migration 6: former names of handlers.
--
-- `Postgres::connect` runs this file. To run it manually, as the owner of the schema, in one transaction:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -c 'SET LOCAL search_path TO idem_store' -f 0006_former_names.sql
--
-- The role that runs the workers then needs the grants of migration 1 again, for the new table:
--
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA idem_store TO worker;

-- The names that a handler had before the one in its row of `handlers`. A worker that has the handler under one of them, because
-- a release was rolled back, gets the same number.
CREATE TABLE former_names (
    handler_id int  NOT NULL,
    name       text NOT NULL,
    PRIMARY KEY (handler_id, name)
);

INSERT INTO migrations (version, name, supports) VALUES (6, 'former_names', 1);
