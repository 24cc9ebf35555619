-- idem, PostgreSQL, migration 6: claims without checks.
--
-- `Postgres::connect` runs this file in a new schema only. In an existing one, run it manually at a quiet time, if at all: as the
-- owner of the schema, in one transaction:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -c 'SET LOCAL search_path TO idem_store' -f 0006_claims_without_checks.sql
--
-- It needs no grants. Every version of idem works with these checks and without them: each claim only costs the server less.

-- PostgreSQL reads the expressions of a table's checks again for each statement that inserts a row, which took some
-- microseconds of each claim. idem writes no other keys and fingerprints than these checks permit.
--
-- That needs the table for itself for a moment. All claims would wait behind a statement that waits for the transactions of
-- handlers, so this one does not wait: while one of them uses the table, it fails, and nothing has changed. Run it again then.
LOCK TABLE processed_messages IN ACCESS EXCLUSIVE MODE NOWAIT;
ALTER TABLE processed_messages
    DROP CONSTRAINT IF EXISTS processed_messages_key_check,
    DROP CONSTRAINT IF EXISTS processed_messages_fingerprint_check;

INSERT INTO migrations (version, name, supports) VALUES (6, 'claims_without_checks', 1);
