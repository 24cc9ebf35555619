-- idem, PostgreSQL, migration 4: external calls.
--
-- `Postgres::connect` runs this file. To run it manually, as the owner of the schema, in one transaction:
--
--   psql -v ON_ERROR_STOP=1 --single-transaction -c 'SET LOCAL search_path TO idem_store' -f 0004_calls.sql
--
-- Workers of the version before keep running, and never take a row whose call may have begun, also not with its answer. Neither
-- can an operator's command of that version make one an ordinary row: its replay fails. Its discard does not, so upgrade such
-- commands first.

-- New columns need the table for themselves. It is asked for one second at a time, so that the statements of workers that
-- run meanwhile wait for at most that long behind this one, while it waits for their handlers.
DO $$
BEGIN
    FOR attempt IN 1..60 LOOP
        BEGIN
            SET LOCAL lock_timeout = '1s';
            LOCK TABLE inbox_messages IN ACCESS EXCLUSIVE MODE;
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_catalog.pg_sleep(0.5);
        END;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = '55P03',
        MESSAGE = 'idem: the table inbox_messages was in use for 90 seconds, so that it could not get new columns',
        HINT = 'Start again while no handler of the inbox runs for longer than a second: stop the workers, or run this file by hand.';
END $$;
SET LOCAL lock_timeout = 0;

-- A row whose handler makes an external call is in its call phase while `starts` is negative: -1 if no call has begun since
-- the last result, and one less for each that has. No statement and no index of ordinary rows or suspects finds such a row,
-- also none of a version that does not know calls. With its answer it becomes an ordinary row, with 0 starts.
ALTER TABLE inbox_messages
    -- The key under which the provider knows the call; kept over all calls, unless an operator lets it call under another.
    ADD COLUMN outbound  uuid,
    -- When the first call under this key was about to begin.
    ADD COLUMN called_at timestamptz,
    -- The token of the take that wrote that time: if it is that of the row, the first call is about to be made. With an answer,
    -- that of the last take.
    ADD COLUMN called_by uuid,
    -- The name of the call that was about to begin.
    ADD COLUMN call_name text,
    -- When a question to the provider first failed. Attempts are counted anew from there.
    ADD COLUMN asked_at  timestamptz,
    -- The answer, as JSON.
    ADD COLUMN answer    bytea,
    -- A worker that runs a row as an ordinary one could pay a second time while its call may have had an effect. A replay of a
    -- version that does not know calls sets `starts` to 0, and has to fail here. All rows are from before these columns, so
    -- they need not be read.
    ADD CONSTRAINT inbox_messages_called CHECK (called_at IS NULL OR answer IS NOT NULL OR starts < 0) NOT VALID;

-- A version that does not know calls would run a row that has an answer, and ignore it: its handler may pay a second time. Its
-- take writes no `called_by`, and gets no such row. The row is due again a little later, so that it is not among the oldest ones,
-- of which a take looks at a few: others would never run.
CREATE FUNCTION leave_answer() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('UPDATE %I.%I SET due_at = now() + interval ''10 seconds'' WHERE id = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME)
        USING NEW.id;
    RETURN NULL;
END $$;

CREATE TRIGGER leave_answer BEFORE UPDATE OF token ON inbox_messages FOR EACH ROW
    WHEN (NEW.answer IS NOT NULL AND NEW.token IS NOT NULL AND NEW.called_by IS DISTINCT FROM NEW.token)
    EXECUTE FUNCTION leave_answer();

-- Finds the rows whose calls are due.
CREATE INDEX inbox_messages_calls ON inbox_messages (handler_id, due_at) WHERE state = 'scheduled' AND starts < 0;

INSERT INTO migrations (version, name, supports) VALUES (4, 'calls', 1);
