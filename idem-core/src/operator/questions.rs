//! The operator's questions, as SQL. Each answer is one row with one JSON text, so one struct decodes it for both databases.
//!
//! A text is written once, in what the databases have in common. `"idem_` begins the name of a table, `{now}` is the time at which
//! the statement began, and each of these becomes the database's own:
//!
//! | in the text | becomes |
//! |---|---|
//! | `{object}(..)`, `{array}(..)` | an object of names and values; an array of the rows of a group |
//! | `{json}(..)` | JSON text as a part of other JSON |
//! | `{ms x}`, `{time $1}` | a time or a duration as milliseconds; such a number as a time |
//! | `{hex x}`, `{uuid x}` | bytes, or the bytes of a UUID, in hexadecimal |
//! | `{find}(x, $1)`, `{bytes x}` | the place of a part in a text or in bytes, or 0; the number of bytes |
//! | `{its}`, `{newest}` | rows `i` of the handler `h`, and an order in which the index of dead letters has them |
//! | `{rows of x}` | the inbox rows `i` of a consumer, from which a condition leaves those of a partial index |
//! | `{list $1}`, `{any $1}` | a JSON array of numbers as a table with the column `id`, or as a condition on the column before it |
//! | `{each}`, `{end}` | begin and end of a query with the column `value` that is run for each row of the table before it |
//!
//! The other holes are filled with constants of this crate. Input of a person is always a parameter.

use std::time::Duration;

use crate::store::Question;

use super::Count;

/// How long a question may take that counts everything.
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// The predicates of the partial indexes of rows that wait, see `migrations/*/0001_tables.sql`. A statement that repeats one of
/// them reads its index alone.
const ORDINARY: &str = "i.state IN ('scheduled', 'running') AND i.crash_count = 0 AND i.lost_connections <= 1";
const ORPHAN: &str = "i.state IN ('scheduled', 'running') AND (i.crash_count >= 1 OR i.lost_connections >= 2)";
const DUE: &str = "coalesce(i.locked_until, i.run_at)";

/// Payloads above this size are not searched for a text.
const SEARCHED: usize = 1 << 20;

/// How many rows a walk over scheduled rows passes at most: dead letters are between them.
const WALKED: u32 = 100_000;

/// One row for each consumer ($1: only this one). $2: count no further than this, along the partial indexes.
const COUNTS: &str = r#"
SELECT {object}('consumer', c.consumer, 'last_seen', {ms {now} - c.seen_at},
    'dead', (SELECT count(*) FROM (SELECT 1 FROM {rows of c.consumer} AND i.state = 'dead' LIMIT $2) AS x),
    'scheduled', (SELECT count(*) FROM (SELECT 1 FROM {rows of c.consumer} AND {ordinary} LIMIT $2) AS x)
        + (SELECT count(*) FROM (SELECT 1 FROM {rows of c.consumer} AND {orphan} LIMIT $2) AS x),
    'calling', (SELECT count(*) FROM (SELECT 1 FROM {rows of c.consumer} AND i.state = 'calling' LIMIT $2) AS x),
    'unresolved', (SELECT count(*) FROM (SELECT 1 FROM {rows of c.consumer} AND i.reason = 'unresolved' LIMIT $2) AS x),
    'oldest_due', (SELECT {ms {now} - min(x.due)} FROM (
        SELECT (SELECT min({due}) FROM "idem_inbox_messages" AS i
            WHERE i.handler_id = h.id AND {ordinary} AND {due} <= {now}) AS due
        FROM "idem_handlers" AS h WHERE h.consumer = c.consumer) AS x)){text}
FROM (SELECT consumer, max(seen_at) AS seen_at FROM "idem_handlers" GROUP BY consumer) AS c
WHERE c.consumer = coalesce($1, c.consumer) ORDER BY c.consumer"#;

pub(super) fn counts(count: Count) -> Question {
    counting(read("counts", COUNTS), count)
}

/// The workers and relays that have written their rows within a day, those that were seen last first, and a thousand at most: a process
/// that is started again and again leaves a row each time.
const WORKERS: &str = r#"
SELECT {object}('instance', {uuid w.instance}, 'kind', w.kind, 'name', w.name, 'host', w.host, 'pid', w.pid, 'version', w.version,
    'started_at', {ms w.started_at}, 'seen', {ms {now} - w.seen_at}, 'report', {json}(w.report)){text}
FROM "idem_workers" AS w ORDER BY w.seen_at DESC, w.kind DESC, w.name LIMIT 1000"#;

pub(super) fn workers() -> Question {
    read("workers", WORKERS)
}

/// $1: count no further than this.
const OUTBOXES: &str = r#"
SELECT {object}('number', o.id, 'namespace', {uuid o.namespace}, 'name', o.name,
    'waiting', (SELECT count(*) FROM (SELECT 1 FROM "idem_outbox_messages" AS m WHERE m.outbox_id = o.id LIMIT $1) AS x),
    'dead', (SELECT count(*) FROM (SELECT 1 FROM "idem_outbox_dead" AS m WHERE m.outbox_id = o.id LIMIT $1) AS x),
    'oldest', (SELECT {ms {now} - m.created_at} FROM "idem_outbox_messages" AS m
        WHERE m.outbox_id = o.id ORDER BY m.id LIMIT 1),
    'relay_seen', CASE WHEN o.relay_seen_at > {epoch} THEN {ms {now} - o.relay_seen_at} END){text}
FROM "idem_outboxes" AS o ORDER BY o.name"#;

pub(super) fn outboxes(count: Count) -> Question {
    counting(read("outboxes", OUTBOXES), count)
}

/// The messages of the outbox $1 before the id $2, at most $3. `{table}` has those that wait, or the dead ones.
const OUTGOING: &str = r#"
SELECT {object}('id', m.id, 'to', m.destination, 'key', {hex m.key}, 'created_at', {ms m.created_at}, 'died_at', {died},
    'attempts', m.attempts, 'error', m.error){text}
FROM "idem_outboxes" AS o JOIN "idem_outbox_{table}" AS m ON m.outbox_id = o.id
WHERE o.name = $1 AND m.id < $2 ORDER BY m.id DESC LIMIT $3"#;

pub(super) fn outgoing(waiting: bool) -> Question {
    let (table, died) = if waiting { ("messages", "NULL") } else { ("dead", "{ms m.died_at}") };
    read("outgoing", &OUTGOING.replace("{table}", table).replace("{died}", died))
}

/// $1: before this id, $2: the size of the window, $3: the handlers. The window is searched first, by an index, and then the
/// rows in it are compared with the filter: so no filter reads more than a window. `at` is the next millisecond, so that a row
/// that died in this one died before it.
const IDS: &str = r#"
WITH {walked} seen AS MATERIALIZED ({seen})
SELECT {object}('ids', {json}({array}(i.id) FILTER (WHERE {where})), 'looked', count(*),
    'unsearched', count(*) FILTER (WHERE {unsearched}), 'next', {next}, 'at', {ms {now}} + 1){text}
FROM seen JOIN "idem_inbox_messages" AS i ON i.id = seen.id"#;

/// The newest dead letters of each handler, by their index; then the newest of all. Where most rows are not yet visible to all
/// transactions, as behind a deploy that has just failed, PostgreSQL would rather walk over all rows by their ids until there are
/// enough of the handler, and so over the whole table for a handler without any. It cannot do so for a range of handlers.
const SEEN_DEAD: &str = r#"
    SELECT d.value AS id FROM {list $3} AS h {each}
        SELECT i.id AS value FROM "idem_inbox_messages" AS i WHERE {its} AND i.state = 'dead' AND i.id < $1
        ORDER BY {newest} LIMIT $2
    {end} ORDER BY d.value DESC LIMIT $2"#;

/// The newest rows of each handler, by another index that begins with the handler; then the newest of all. `+ 0` keeps the
/// databases from a walk by the ids, as SQLite would rather do over all dead letters of the handler.
const SEEN_EACH: &str = r#"
    SELECT d.value AS id FROM {list $3} AS h {each}
        SELECT i.id AS value FROM "idem_inbox_messages" AS i WHERE i.handler_id = h.id AND {state} AND i.id + 0 < $1
        ORDER BY i.id + 0 DESC LIMIT $2
    {end} ORDER BY d.value DESC LIMIT $2"#;

/// Rows that are not dead are in three indexes, none of them by id.
const WALK: &str = r#"walked AS MATERIALIZED (
    SELECT i.id, i.state FROM "idem_inbox_messages" AS i WHERE i.id < $1 ORDER BY i.id DESC LIMIT {rows}
),"#;
const SEEN_WALKED: &str = r#"SELECT w.id FROM walked AS w WHERE w.state <> 'dead' ORDER BY w.id DESC LIMIT $2"#;

/// The rows with the ids $4.
const SEEN_IDS: &str = r#"SELECT d.id FROM {list $4} AS d WHERE d.id < $1 ORDER BY d.id DESC LIMIT $2"#;

/// How a window of rows is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen<'a> {
    /// By their index, the dead letters of each handler.
    Dead,
    /// By another index, those of each handler to which this condition applies.
    Each(&'a str),
    /// By walking over all rows, those that are not dead.
    Walked,
    /// By their ids, $4.
    Ids,
}

/// `which`: the condition on the rows `i` of the window. `searches`: it compares payloads.
pub(super) fn ids(seen: Seen<'_>, which: &str, searches: bool) -> Question {
    let filled = "CASE WHEN count(*) = $2 THEN min(i.id) END";
    let all = format!(
        "CASE WHEN count(*) = $2 THEN min(i.id) \
         ELSE (SELECT CASE WHEN count(*) = {WALKED} THEN min(w.id) END FROM walked AS w) END"
    );
    let walk = WALK.replace("{rows}", &WALKED.to_string());
    let (walked, found, next) = match seen {
        Seen::Dead => ("", SEEN_DEAD.to_owned(), filled),
        Seen::Each(state) => ("", SEEN_EACH.replace("{state}", state), filled),
        Seen::Walked => (&*walk, SEEN_WALKED.to_owned(), &*all),
        Seen::Ids => ("", SEEN_IDS.to_owned(), filled),
    };
    let unsearched = if searches { format!("NOT {}", searched()) } else { "1 = 0".to_owned() };
    let text = IDS.replace("{walked}", walked).replace("{seen}", &found).replace("{next}", next);
    read("ids", &text.replace("{where}", which).replace("{unsearched}", &unsearched))
}

/// The condition that a payload is small enough to be searched. Its length is known without reading it.
pub(super) fn searched() -> String {
    format!("{{bytes i.payload}} <= {SEARCHED}")
}

/// One row for each of the handlers $1: the causes of its newest $2 dead letters.
const GROUPS: &str = r#"
SELECT {object}('consumer', n.consumer, 'handler', n.name,
    'looked', (SELECT count(*) FROM (SELECT 1 FROM "idem_inbox_messages" AS i
        WHERE i.handler_id = h.id AND i.state = 'dead' LIMIT $2) AS x),
    'groups', {json}((SELECT {array}({json}(g.value)) FROM (
        SELECT {object}('reason', i.reason, 'line', {line}, 'count', count(*), 'first', {ms min(i.died_at)},
            'last', {ms max(i.died_at)}, 'example', max(i.id)) AS value
        FROM (SELECT i.id FROM "idem_inbox_messages" AS i WHERE {its} AND i.state = 'dead' ORDER BY {newest} LIMIT $2) AS d
            JOIN "idem_inbox_messages" AS i ON i.id = d.id
        WHERE {where} GROUP BY i.reason, {line} ORDER BY count(*) DESC LIMIT 1000) AS g))){text}
FROM {list $1} AS h JOIN "idem_handlers" AS n ON n.id = h.id"#;

pub(super) fn groups(which: &str, count: Count) -> Question {
    counting(read("groups", &GROUPS.replace("{where}", which)), count)
}

/// The claim and the rows of the key $2 of the handler $1, and one of the handler's keys. That of the claim is the first row; then
/// come the newest conflicts, of which there are many if the key is the id of an entity.
const WHY: &str = r#"
SELECT {object}('claimed', CASE WHEN c.handler_id IS NULL THEN 0 ELSE 1 END, 'fingerprint', {hex c.fingerprint},
    'processed_at', {ms c.processed_at}, 'age', {ms {now} - c.processed_at},
    'retention', {ms h.retention}, 'pruned_through', {ms h.pruned_through},
    'sample', (SELECT {hex p.key} FROM "idem_processed_messages" AS p WHERE p.handler_id = $1 ORDER BY p.key LIMIT 1),
    'rows', {json}((SELECT {array}(r.id) FROM (
        SELECT i.id FROM "idem_inbox_messages" AS i WHERE i.handler_id = $1 AND i.key = $2
        ORDER BY CASE i.reason WHEN 'conflict' THEN 1 ELSE 0 END, i.id DESC LIMIT 20) AS r)),
    'operations', {json}((SELECT {array}({json}(x.value)) FROM (
        SELECT {operation} AS value FROM {operations} WHERE o.handler_id = $1 AND o.key = $2
        ORDER BY o.id DESC LIMIT 5) AS x))){text}
FROM "idem_handlers" AS h LEFT JOIN "idem_processed_messages" AS c ON c.handler_id = h.id AND c.key = $2
WHERE h.id = $1"#;

pub(super) fn why() -> Question {
    read("why", &with_operations(WHY))
}

/// What operators have done, before the id $1, at most $2.
const OPERATIONS: &str = r#"
SELECT {operation}{text} FROM {operations} WHERE o.id < $1 AND {where} ORDER BY o.id DESC LIMIT $2"#;

const OPERATION: &str = r#"{object}('id', o.id, 'at', {ms o.at}, 'action', o.action, 'actor', o.actor, 'role', o.role,
    'command', {uuid o.command}, 'consumer', n.consumer, 'handler', n.name, 'outbox', b.name, 'row', o.row_id, 'key', {hex o.key},
    'reason', o.reason, 'error', o.error, 'attempts', o.attempts)"#;
const OF_OPERATIONS: &str = r#""idem_operations" AS o LEFT JOIN "idem_handlers" AS n ON n.id = o.handler_id
    LEFT JOIN "idem_outboxes" AS b ON b.id = o.outbox_id"#;

/// `which`: the condition on the operations `o` and the names `n` of their handlers.
pub(super) fn operations(which: &str) -> Question {
    read("operations", &with_operations(OPERATIONS).replace("{where}", which))
}

fn with_operations(text: &str) -> String {
    text.replace("{operation}", OPERATION).replace("{operations}", OF_OPERATIONS)
}

/// The ids of the rows of the handlers $1 whose calls may have had an effect, before the id $2, at most $3. Both indexes are nearly
/// empty.
const CALLS: &str = r#"
SELECT CAST(x.id AS TEXT) FROM (
    SELECT i.id FROM "idem_inbox_messages" AS i
    WHERE i.handler_id {any $1} AND i.state = 'calling' AND i.called_at IS NOT NULL AND i.id < $2
    UNION ALL
    SELECT i.id FROM "idem_inbox_messages" AS i WHERE i.handler_id {any $1} AND i.reason = 'unresolved' AND i.id < $2
) AS x ORDER BY x.id DESC LIMIT $3"#;

pub(super) fn calls() -> Question {
    read("calls", CALLS)
}

/// Deletes the dated claim of the key $2 of the handler $1, unless a row has the key, with the reply to its request if it is that
/// of one, and notes the command $3 of $4. A conflict that is written beside the claim meanwhile holds it, so the DELETE waits.
const FORGET: &str = r#"
WITH gone AS (
    DELETE FROM "idem_processed_messages" AS c WHERE {forgettable} RETURNING c.processed_at
), noted AS (
    INSERT INTO "idem_operations" (command, action, actor, handler_id, key)
    SELECT encode($3, 'hex')::uuid, 'forgotten', $4, $1, $2 FROM gone
), replied AS (
    DELETE FROM "idem_replies" AS r WHERE r.handler_id = $1 AND r.key = $2 AND EXISTS (SELECT FROM gone)
)
SELECT {ms processed_at}::text FROM gone"#;
const FORGET_SQLITE: &str = r#"
INSERT INTO "idem_operations" (at, command, action, actor, handler_id, key)
SELECT {now}, $3, 'forgotten', $4, $1, $2 FROM "idem_processed_messages" AS c WHERE {forgettable};
DELETE FROM "idem_replies" WHERE handler_id = $1 AND key = $2
    AND EXISTS (SELECT 1 FROM "idem_processed_messages" AS c WHERE {forgettable});
DELETE FROM "idem_processed_messages" AS c WHERE {forgettable} RETURNING CAST(processed_at AS TEXT)"#;
const FORGETTABLE: &str = r#"c.handler_id = $1 AND c.key = $2 AND c.processed_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = $1 AND i.key = $2)"#;

pub(super) fn forget() -> Question {
    let filled = |text: &str| text.replace("{forgettable}", FORGETTABLE);
    both("forget", &filled(FORGET), &filled(FORGET_SQLITE)).writes()
}

/// The database's clock.
pub(super) fn clock() -> Question {
    read("clock", "SELECT CAST({ms {now}} AS TEXT)")
}

/// The tables of idem that autovacuum is behind with. SQLite has no such thing.
const VACUUM: &str = r#"
SELECT json_build_object('table', s.relname, 'dead', s.n_dead_tup){text}
FROM pg_stat_all_tables AS s JOIN pg_class AS c ON c.oid = s.relid
WHERE s.n_dead_tup > 100000 + s.n_live_tup / 2
    AND c.relnamespace = (SELECT t.relnamespace FROM pg_class AS t
                          WHERE t.oid = (SELECT m.tableoid FROM "idem_migrations" AS m LIMIT 1))
ORDER BY s.relname"#;

pub(super) fn vacuum() -> Question {
    both("vacuum", VACUUM, "SELECT NULL WHERE 1 = 0")
}

fn counting(question: Question, count: Count) -> Question {
    match count {
        Count::AtLeast => question,
        Count::Exact => question.patience(LONG_PATIENCE),
    }
}

/// A question whose text the databases share.
fn read(name: &'static str, text: &str) -> Question {
    both(name, text, text)
}

fn both(name: &'static str, postgres: &str, sqlite: &str) -> Question {
    let postgres = HOLES.iter().fold(waiting(postgres), |text, (hole, own, _)| filled(&text, hole, own));
    let sqlite = HOLES.iter().fold(waiting(sqlite), |text, (hole, _, own)| filled(&text, hole, own));
    Question::new(name, postgres.replace("\"idem_", "{schema}.\""), sqlite.replace(NOW, "{now}"))
}

/// Stands for SQLite's clock, which the store fills in, while other holes are filled.
const NOW: &str = "<now>";

/// What each hole becomes on PostgreSQL and on SQLite. `#` is what stands in it behind its name. The clock is the first, since it
/// stands in others.
const HOLES: [(&str, &str, &str); 20] = [
    ("now", "now()", NOW),
    ("object", "json_build_object", "json_object"),
    ("array", "json_agg", "json_group_array"),
    ("json", "", "json"),
    ("text", "::text", ""),
    ("ms", "(extract(epoch FROM #) * 1000)::bigint", "(#)"),
    ("time", "to_timestamp(# / 1000.0)", "#"),
    ("epoch", "timestamptz 'epoch'", "0"),
    ("hex", "encode(#, 'hex')", "lower(hex(#))"),
    ("uuid", "encode(uuid_send(#), 'hex')", "nullif(lower(hex(#)), '')"),
    // Of a BLOB the number of bytes, also before SQLite 3.43.
    ("bytes", "octet_length(#)", "length(#)"),
    ("find", "pg_catalog.\"position\"", "instr"),
    (
        "line",
        "left(split_part(i.error, E'\\n', 1), 200)",
        "substr(i.error, 1, min(instr(i.error || char(10), char(10)) - 1, 200))",
    ),
    (
        "list",
        "(SELECT x::bigint AS id FROM json_array_elements_text(#::json) AS x)",
        "(SELECT value AS id FROM json_each(#))",
    ),
    (
        "any",
        "= ANY(ARRAY(SELECT x::int FROM json_array_elements_text(#::json) AS x))",
        "IN (SELECT value FROM json_each(#))",
    ),
    // CROSS, so that SQLite searches the index for each handler, and does not read the table.
    (
        "rows of",
        "\"idem_inbox_messages\" AS i WHERE i.handler_id = \
         ANY(ARRAY(SELECT h.id FROM \"idem_handlers\" AS h WHERE h.consumer = #))",
        "\"idem_handlers\" AS h CROSS JOIN \"idem_inbox_messages\" AS i WHERE h.consumer = # AND i.handler_id = h.id",
    ),
    ("its", "i.handler_id BETWEEN h.id AND h.id", "i.handler_id = h.id"),
    ("newest", "i.handler_id DESC, i.id DESC", "i.id DESC"),
    ("each", "CROSS JOIN LATERAL (", ", json_each((SELECT json_group_array(value) FROM ("),
    ("end", ") AS d", "))) AS d"),
];

/// Fills in the predicates of rows that wait.
fn waiting(text: &str) -> String {
    text.replace("{ordinary}", ORDINARY).replace("{orphan}", ORPHAN).replace("{due}", DUE)
}

/// Fills in each hole with this name.
fn filled(text: &str, hole: &str, own: &str) -> String {
    let begin = format!("{{{hole}");
    let mut parts = text.split(begin.as_str());
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (content, rest) = part.split_once('}').unwrap_or((part, ""));
        whole.push_str(&own.replace('#', content.trim_start()));
        whole.push_str(rest);
    }
    whole
}
