-- idem, PostgreSQL, migration 5: namespaces of external calls.
--
-- `Postgres::connect` runs this file. To run it manually, as the owner of the schema, in one transaction:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -c 'SET LOCAL search_path TO idem_store' -f 0005_call_namespaces.sql
--
-- The role that runs workers whose handlers make external calls then needs the grants of migration 1 again, for the new
-- table. Other workers need neither this table nor the grants:
--
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA idem_store TO worker;

-- A random value for each handler that makes an external call, which the first worker in which it makes one inserts. The first
-- key of a message from a stream is a hash of this value and of the position of the message, so a message that comes again
-- behind a restored backup is called for under the same key. Never change a row: the provider recognizes a repeated call by
-- its key.
--
-- The foreign key needs the table `handlers` for a moment, in which statements of workers wait behind it. If another
-- transaction keeps it longer than five seconds, this migration is left out, and the next start tries again.
SET LOCAL lock_timeout = '5s';
CREATE TABLE call_namespaces (
    -- A handler that is renamed keeps its number, and so its value. If it is deleted and registered again, it gets another
    -- value.
    handler_id int  PRIMARY KEY REFERENCES handlers (id) ON DELETE CASCADE,
    namespace  uuid NOT NULL DEFAULT gen_random_uuid()
);
SET LOCAL lock_timeout = 0;

INSERT INTO migrations (version, name, supports) VALUES (5, 'call_namespaces', 1);
