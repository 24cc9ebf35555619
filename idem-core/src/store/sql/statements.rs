//! The statements that are alike in all databases. `"idem_` begins the name of a table, `{now}` is the time at which the statement
//! began and `{clock}` the current one, to which a time in the database's own unit can be added, `{greatest}` is the function
//! by this name, and `{source}` the source of the message of a row `i`.

use std::collections::HashMap;
use std::time::Duration;

use crate::Reason;
use crate::store::{MAX_LOST_CONNECTIONS, Replay, Replayed, RowKind};

/// What a fetch under the token $3 changes in a row `i`, besides token, lease and count; `due` has the name of its call. The time of
/// the first call is written before the call.
pub(crate) fn fetched(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Ordinary | RowKind::Orphan | RowKind::Alone => "state = 'running'",
        RowKind::Calling => {
            "called_at = coalesce(i.called_at, {now}),
             called_by = CASE WHEN i.called_at IS NULL THEN $3 ELSE i.called_by END,
             call_name = CASE WHEN i.called_at IS NULL THEN due.call ELSE i.call_name END"
        }
    }
}

/// One statement for every result of a run: $3 attempts to add, $4 starts to refund, $5 lost connections to add, $6 the delay
/// until the row is due, $7 the reason if it is dead, $8 the error.
pub(crate) const RECORD_RESULT: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, attempts = attempts + $3,
    crash_count = CASE WHEN $3 > 0 THEN 0 ELSE {greatest}(crash_count - $4, 0) END,
    lost_connections = CASE WHEN $3 > 0 THEN 0 ELSE lost_connections + $5 END,
    run_at = coalesce({now} + $6, run_at), error = coalesce($8, error),
    reason = coalesce($7, CASE WHEN $5 > 0 AND lost_connections + $5 >= 10 THEN 'broke its connection' END),
    state = CASE WHEN $7 IS NULL AND ($5 = 0 OR lost_connections + $5 < 10) THEN 'scheduled' ELSE 'dead' END,
    died_at = CASE WHEN $7 IS NOT NULL OR $5 > 0 AND lost_connections + $5 >= 10 THEN {now} END
WHERE id = $1 AND locked_by = $2 RETURNING 1"#;
const _: () = assert!(MAX_LOST_CONNECTIONS == 10);

pub(crate) const REFUND_START: &str = r#"
UPDATE "idem_inbox_messages" SET crash_count = {greatest}(crash_count - 1, 0)
WHERE id = $1 AND crash_count > 0 AND state <> 'calling'"#;

pub(crate) const IS_SCHEDULED: &str = r#"
SELECT 1 FROM "idem_inbox_messages" WHERE handler_id = $1 AND key = $2 AND state <> 'dead'"#;

/// One statement for every result of a call: $3 attempts to add, $4 the answer, $5 the delay, $6 the reason if dead, $7 the
/// error, $8 whether no call can have had an effect, $9 whether the lease is left to end, $10 whether a question has failed. The
/// first one begins the attempts anew. A row that is only snoozed keeps the earlier starts: they may have ended processes.
///
/// An answer is kept also if the lease has ended meanwhile, as in an outage: it is that of the key $11, which the row has until
/// a person has said that no call under it had an effect.
pub(crate) const RECORD_CALL: &str = r#"
UPDATE "idem_inbox_messages" SET
    locked_by = NULL,
    locked_until = NULL,
    crash_count = CASE WHEN $4 IS NULL AND $3 = 0 AND $6 IS NULL THEN {greatest}(crash_count - 1, 0) ELSE 0 END,
    attempts = CASE WHEN $4 IS NOT NULL THEN 0 WHEN $10 AND asked_at IS NULL THEN $3 ELSE attempts + $3 END,
    asked_at = CASE WHEN $10 THEN coalesce(asked_at, {now}) ELSE asked_at END,
    answer = $4,
    called_at = CASE WHEN NOT $8 THEN called_at END,
    called_by = CASE WHEN NOT $8 THEN called_by END,
    call_name = CASE WHEN NOT $8 THEN call_name END,
    run_at = CASE WHEN $9 AND locked_until > {now} + $5 THEN locked_until ELSE {now} + $5 END,
    reason = $6,
    state = CASE WHEN $6 IS NOT NULL THEN 'dead' WHEN $4 IS NOT NULL THEN 'scheduled' ELSE 'calling' END,
    died_at = CASE WHEN $6 IS NOT NULL THEN {now} END,
    error = coalesce($7, error)
WHERE id = $1 AND state IN ('calling', 'dead') AND answer IS NULL AND (locked_by = $2 OR $4 IS NOT NULL AND provider_key = $11)
RETURNING 1"#;

pub(crate) const DATE_CALL: &str = r#"
UPDATE "idem_inbox_messages" SET called_at = {now}, called_by = locked_by, asked_at = NULL, locked_until = {now} + $3
WHERE id = $1 AND locked_by = $2 AND state = 'calling' RETURNING 1"#;

pub(crate) const LEAVE_TO_CALL: &str = r#"
UPDATE "idem_inbox_messages" SET locked_by = NULL, locked_until = NULL, state = 'calling', crash_count = 0,
    lost_connections = 0, run_at = {now}, provider_key = coalesce(provider_key, $3)
WHERE id = $1 AND locked_by = $2 RETURNING 1"#;

/// The rows of inbox and outbox that an operator changes are noted in this table. $3, $4 and $5 are the command, its action and its
/// actor, in each statement of an operator.
pub(crate) const OPERATIONS: &str =
    r#""idem_operations" (command, action, actor, handler_id, row_id, key, reason, attempts, error)"#;

/// A dead row `i` of the consumer $2, or of any.
pub(crate) const DEAD: &str = r#"i.state = 'dead'
    AND ($2 IS NULL OR i.handler_id IN (SELECT h.id FROM "idem_handlers" AS h WHERE h.consumer = $2))"#;

/// Whether a row `i` is replayed: $6 by force, $7 also if it is a conflict, which loses its key, because its handler gets another one
/// from the message now. One of a local message, or with a damaged envelope, is left, since its handler may take no deliveries. So is
/// one whose handler makes an external call: a person looks at each.
pub(crate) const IS_REPLAYED: &str = r#"i.reason <> 'unresolved' AND (i.reason <> 'conflict' OR $7 AND i.provider_key IS NULL AND
        coalesce({source}, 'local') <> 'local' AND NOT EXISTS (SELECT 1 FROM "idem_call_namespaces" AS c WHERE c.handler_id = i.handler_id))
    AND ($6 OR i.reason NOT IN ('committed by its handler', 'too old'))"#;

/// What a replay changes in a row `i`. One that ended processes or connections runs as an orphaned row again: lost_connections is
/// set to 2 to mark it, because crash_count is reset to 0. A row whose external call may have begun, and that has no answer,
/// goes back to its call phase, with the key, the time of its first call, and the end of its lease, because its request may still be
/// on its way.
pub(crate) const REPLAYED: &str = "locked_by = NULL, locked_until = NULL, crash_count = 0, attempts = 0,
    state = CASE WHEN i.called_at IS NOT NULL AND i.answer IS NULL THEN 'calling' ELSE 'scheduled' END,
    run_at = CASE WHEN i.called_at IS NOT NULL AND i.answer IS NULL
        THEN {greatest}(coalesce(i.locked_until, i.run_at), i.run_at, {now}) ELSE {now} END,
    lost_connections = CASE WHEN (i.called_at IS NULL OR i.answer IS NOT NULL) AND i.reason IN ('crashed', 'broke its connection')
        THEN 2 ELSE 0 END,
    reason = NULL, died_at = NULL, asked_at = NULL";

/// Whether a row `i` is resolved: $6 is the key that the person has looked for. A row that has an answer is not called for again.
pub(crate) const IS_RESOLVED: &str = "i.provider_key = $6 AND ($7 IS NOT NULL OR i.answer IS NULL)";

/// What a resolution changes in a row `i`. $7: the answer; null: another call, which needs another key, $8, and waits until no
/// request of the last one can be on its way.
pub(crate) const RESOLVED: &str = "
    state = CASE WHEN $7 IS NULL THEN 'calling' ELSE 'scheduled' END,
    reason = NULL, died_at = NULL, locked_by = NULL, locked_until = NULL, crash_count = 0, attempts = 0, lost_connections = 0,
    run_at = CASE WHEN $7 IS NULL THEN {greatest}(coalesce(i.locked_until, i.run_at), i.run_at, {now}) ELSE {now} END,
    answer = $7,
    provider_key = CASE WHEN $7 IS NULL THEN $8 ELSE i.provider_key END,
    called_at = CASE WHEN $7 IS NOT NULL THEN i.called_at END,
    called_by = CASE WHEN $7 IS NOT NULL THEN i.called_by END,
    call_name = NULL,
    asked_at = CASE WHEN $7 IS NOT NULL THEN i.asked_at END";

/// Whether a row `i` is discarded: $6 is the key of the call that an operator resolves. Without one, a row whose call may have begun
/// stays, whatever made it dead: its key is all by which anybody finds the effect.
pub(crate) const IS_DISCARDED: &str =
    "CASE WHEN $6 IS NOT NULL THEN i.provider_key = $6 ELSE i.called_at IS NULL AND i.answer IS NULL END";

impl Replay<'_> {
    /// The answer about a row that was dead for this reason, and that was replayed or left as it is.
    pub(crate) fn answer(self, is_done: bool, reason: &str) -> Replayed {
        let is_conflict = reason == Reason::Conflict.as_str();
        match self {
            _ if is_done => Replayed::Due,
            Self::As(_) if is_conflict => Replayed::KeyTaken,
            Self::As(_) => Replayed::NotFound,
            Self::Plain | Self::Forced | Self::NewKeys if is_conflict => Replayed::NeedsKey,
            Self::Plain | Self::Forced | Self::NewKeys => match Reason::parse(reason) {
                Some(Reason::Unresolved) => Replayed::Unresolved,
                Some(reason) if reason.needs_force() => Replayed::NeedsForce,
                Some(_) | None => Replayed::NotFound,
            },
        }
    }
}

/// Returns one answer for each id, in their order. A row without one is gone, or another operator changes it.
pub(crate) fn in_order(ids: &[i64], answers: impl IntoIterator<Item = (i64, Replayed)>) -> Vec<(i64, Replayed)> {
    let mut answers: HashMap<i64, Replayed> = answers.into_iter().collect();
    ids.iter().map(|id| (*id, answers.remove(id).unwrap_or(Replayed::NotFound))).collect()
}

/// The number of a handler by its name $2. A former name comes behind the same name of another handler.
pub(crate) const NUMBER: &str = r#"
SELECT id FROM (
    SELECT id, 1 AS place FROM "idem_handlers" WHERE consumer = $1 AND name = $2
    UNION ALL
    SELECT h.id, 2 FROM "idem_handlers" AS h JOIN "idem_former_names" AS f ON f.handler_id = h.id
    WHERE h.consumer = $1 AND f.name = $2
) AS found ORDER BY place LIMIT 1"#;

/// Before [`RENAME`].
pub(crate) const KEEP_NAME: &str = r#"
INSERT INTO "idem_former_names" (handler_id, name) SELECT id, name FROM "idem_handlers" WHERE id = $1 ON CONFLICT DO NOTHING"#;

pub(crate) const RENAME: &str = r#"UPDATE "idem_handlers" SET name = $2 WHERE id = $1"#;

pub(crate) const ADD_FORMER_NAME: &str = r#"
INSERT INTO "idem_former_names" (handler_id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING"#;

/// Deletes a handler to which nothing belongs.
pub(crate) const FORGET: &str = r#"
DELETE FROM "idem_handlers" AS h WHERE id = $1 AND pruned_through IS NULL
    AND NOT EXISTS (SELECT 1 FROM "idem_processed_messages" AS p WHERE p.handler_id = h.id)
    AND NOT EXISTS (SELECT 1 FROM "idem_inbox_messages" AS i WHERE i.handler_id = h.id)
RETURNING 1"#;

/// Whether the lease of an outbox can be taken or renewed under the token $2. It writes nothing.
pub(crate) const FREE: &str = r#"
SELECT locked_by IS NULL OR locked_by = $2 OR locked_until < {now} OR locked_until > {now} + lease
FROM "idem_outboxes" WHERE id = $1"#;

/// It may wait for another relay, and compares the lease of that one with the time after the wait: one that was renewed since the
/// statement began would seem to end too late, and would be taken.
pub(crate) const LEASE: &str = r#"
UPDATE "idem_outboxes" SET locked_by = $2, lease = $3, locked_until = {clock} + $3, relay_seen_at = {clock}
WHERE id = $1 AND (locked_by IS NULL OR locked_by = $2 OR locked_until < {clock} OR locked_until > {clock} + lease) RETURNING 1"#;

pub(crate) const RELEASE: &str = r#"
UPDATE "idem_outboxes" SET locked_by = NULL, locked_until = {now} WHERE id = $1 AND locked_by = $2"#;

/// Records that a relay of an outbox runs.
pub(crate) const SHOW: &str = r#"UPDATE "idem_outboxes" SET relay_seen_at = {now} WHERE id = $1 RETURNING 1"#;

/// What prune deletes besides claims, and how long it is kept: operations, and workers and relays that have ended. Of the operations it
/// looks at the oldest thousand: with the date in the inner statement, it would read the whole table.
pub(crate) const PRUNED: [(&str, Duration); 2] = [
    (
        r#"
DELETE FROM "idem_operations" WHERE id IN (
    SELECT oldest.id FROM (SELECT id, at FROM "idem_operations" ORDER BY id LIMIT 1000) AS oldest WHERE oldest.at < {now} - $1)"#,
        Duration::from_secs(90 * 24 * 3600),
    ),
    (r#"DELETE FROM "idem_workers" WHERE seen_at < {now} - $1"#, Duration::from_secs(24 * 3600)),
];
