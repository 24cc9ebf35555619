-- idem, SQLite, migration 4: external calls.
--
-- `Sqlite::connect` runs this file. To run it manually, in one transaction:
--
--   sqlite3 -bail orders.db 'BEGIN IMMEDIATE' '.read 0004_calls.sql' 'COMMIT'
--
-- For a prefix other than `idem_`, replace `"idem_` throughout. Workers of the version before keep running, and never take
-- a row whose call may have begun, also not with its answer. Neither can an operator's command of that version make one an
-- ordinary row: its replay fails. Its discard does not, so upgrade such commands first.

-- A row whose handler makes an external call is in its call phase while `starts` is negative: -1 if no call has begun since
-- the last result, and one less for each that has. No statement and no index of ordinary rows or suspects finds such a row,
-- also none of a version that does not know calls. With its answer it becomes an ordinary row, with 0 starts.
--
-- The key under which the provider knows the call; kept over all calls, unless an operator lets it call under another.
ALTER TABLE "idem_inbox_messages" ADD COLUMN outbound BLOB;
-- When the first call under this key was about to begin.
ALTER TABLE "idem_inbox_messages" ADD COLUMN called_at INTEGER;
-- The token of the take that wrote that time: if it is that of the row, the first call is about to be made. With an answer,
-- that of the last take.
ALTER TABLE "idem_inbox_messages" ADD COLUMN called_by BLOB;
-- The name of the call that was about to begin.
ALTER TABLE "idem_inbox_messages" ADD COLUMN call_name TEXT;
-- When a question to the provider first failed. Attempts are counted anew from there.
ALTER TABLE "idem_inbox_messages" ADD COLUMN asked_at INTEGER;
-- The answer, as JSON. A worker that runs a row as an ordinary one could pay a second time while its call may have had an
-- effect. A replay of a version that does not know calls sets `starts` to 0, and has to fail here.
ALTER TABLE "idem_inbox_messages" ADD COLUMN answer BLOB
    CHECK (called_at IS NULL OR answer IS NOT NULL OR starts < 0);

-- A version that does not know calls would run a row that has an answer, and ignore it: its handler may pay a second time. Its
-- take writes no `called_by`, and gets no such row. The row is due again a little later, so that it is not among the oldest ones,
-- of which a take looks at a few: others would never run.
CREATE TRIGGER "idem_leave_answer" BEFORE UPDATE OF token ON "idem_inbox_messages"
    WHEN NEW.answer IS NOT NULL AND NEW.token IS NOT NULL AND NEW.called_by IS NOT NEW.token
BEGIN
    UPDATE "idem_inbox_messages" SET due_at = CAST(unixepoch('subsec') * 1000 AS INTEGER) + 10000 WHERE id = NEW.id;
    SELECT RAISE(IGNORE);
END;

-- Finds the rows whose calls are due. The columns behind due_at let SQLite count without reading the rows.
CREATE INDEX "idem_inbox_messages_calls" ON "idem_inbox_messages" (handler_id, due_at, starts, state)
    WHERE state = 'scheduled' AND starts < 0;

INSERT INTO "idem_migrations" (version, name, supports) VALUES (4, 'calls', 1);
