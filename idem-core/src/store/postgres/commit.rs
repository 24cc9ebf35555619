//! Guard and COMMIT. The guard checks whether the transaction is still the one that made the claim.

use sqlx::Connection as _;

use crate::store::{CommitResult, StoreError, TxnOutcome, UNBEGUN, log_conflicts};

use super::Postgres;
use super::answer::{About, Failure};
use super::connection::{Answer, UNREAD};
use super::local_sql::RACED;
use super::rollback::rollback;
use super::txn::{Txn, not_answered};
use super::writes::{TOO_MUCH, conflicts};

/// The text that distinguishes the guard's own error from a handler's.
const ENDED: &str = "idem: the handler ended the transaction";

/// The text of the error if a handler left changed settings for the other handlers of its transaction.
pub(super) const CHANGED: &str = "idem: a handler changed the role or a setting, or left a temporary table, which would affect \
                                  later handlers of the batch";

/// The size of a string, in bytes, above which the connection frees its buffer behind it. sqlx would keep that for the connection's
/// life, and each connection has one.
const LARGE: usize = 1024 * 1024;

/// Runs guard and COMMIT in one string: if the guard fails, the COMMIT is not run.
pub(super) async fn commit(store: &Postgres, mut txn: Txn) -> CommitResult {
    if !txn.connection.sound {
        return CommitResult::NotSent(not_answered(), txn.txn_handle().map(Box::new));
    }
    // Reads what the handler left unread, and so finds out whether the server has closed the connection meanwhile.
    if let Err(lost) = txn.connection.flush().await {
        return CommitResult::NotSent(lost.into(), txn.txn_handle().map(Box::new));
    }
    if !txn.connection.counts_transaction() {
        // This is no ROLLBACK of the handler's own: a nested transaction did not begin.
        return undo(txn, 0, CommitResult::Refused(UNBEGUN.into())).await;
    }
    let writes = std::mem::take(&mut txn.writes);
    if writes.are_too_large() {
        return undo(txn, 0, CommitResult::Refused(TOO_MUCH.into())).await;
    }
    let inserts = writes.statements(store, txn.connection.ready.session.writes, txn.lock_wait, txn.batch);
    let (text, needed) = question(&txn, &inserts);
    let is_large = text.len() > LARGE;
    let Answer { finished, rows, failure } = txn.connection.run(text).await;
    if is_large {
        txn.connection.ready.conn.shrink_buffers();
    }
    let failure = match failure {
        // This answers a COPY of the handler. The answer to these statements is still to come, and may be a refusal.
        None if finished < needed => return CommitResult::Unknown(StoreError::ConnectionLost(UNREAD.into())),
        None => {
            if !writes.local.is_empty() {
                log_conflicts(conflicts(&rows));
            }
            txn.put_back(&rows);
            return CommitResult::Done;
        }
        // Guard and COMMIT were answered; the cleanup after them failed. The connection is closed.
        Some(_) if finished >= needed => return CommitResult::Done,
        Some(Failure::Lost(error)) => return CommitResult::Unknown(StoreError::ConnectionLost(error)),
        Some(failure @ Failure::Refused(_)) => failure,
    };
    // The guard has passed, and what failed behind it is an INSERT of staged messages.
    let in_insert = (1..=inserts.len()).contains(&finished);
    refused(txn, finished, failure, in_insert).await
}

/// Returns guard, `inserts`, COMMIT and cleanup in one string, and the number of statements up to and including COMMIT.
/// The guard comes first, so that nothing is inserted behind a transaction that its handler has ended.
fn question(txn: &Txn, inserts: &[String]) -> (String, usize) {
    // One more statement, which permits the COMMIT that follows it.
    let (leave, needed) = match &txn.xid {
        Some(xid) if txn.batch => (format!("; SELECT pg_catalog.set_config('idem.commit', '{xid}', true)"), 3),
        _ => (String::new(), 2),
    };
    let mut text = guard(txn);
    text.reserve(inserts.iter().map(|insert| insert.len() + 2).sum::<usize>() + 200);
    inserts.iter().for_each(|insert| text.extend(["; ", insert]));
    text.extend([&*leave, "; COMMIT", txn.cleaning()]);
    (text, needed + inserts.len())
}

/// Returns the guard.
fn guard(txn: &Txn) -> String {
    let level = txn.connection.ready.session.synchronous_commit();
    let same = (txn.shared && !txn.connection.resets()).then(|| &*txn.connection.ready.session.state.same);
    match &txn.xid {
        // The transaction id comes from the server and consists of digits.
        Some(xid) if txn.connection.is_pooled() => check(&format!("'{xid}'::pg_catalog.xid8"), same, level),
        Some(xid) if same.is_some() => format!("EXECUTE idem_guard_shared('{xid}')"),
        Some(xid) => format!("EXECUTE idem_guard('{xid}')"),
        // An aborted transaction answers COMMIT with ROLLBACK and no error; any statement before it raises one.
        None => "SELECT 1".to_owned(),
    }
}

/// Returns a statement that raises an error unless the current transaction has this id, and `same` holds if given. It
/// also sets the level of durability again if the handler has changed it.
pub(super) fn check(xid: &str, same: Option<&str>, level: &str) -> String {
    // Casting a text that is not a number is how plain SQL raises a custom error; `concat` is not immutable, which
    // keeps the planner from raising it beforehand (PostgreSQL manual, 4.2.14).
    let mut check = format!(
        "SELECT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned() IS DISTINCT FROM {xid}
             THEN pg_catalog.concat('{ENDED}')::int "
    );
    if let Some(same) = same {
        check += &format!("WHEN NOT ({same}) THEN pg_catalog.concat('{CHANGED}')::int ");
    }
    check += &format!(
        "WHEN pg_catalog.current_setting('synchronous_commit') <> '{level}'
             THEN pg_catalog.length(pg_catalog.set_config('synchronous_commit', '{level}', true)) ELSE 1 END"
    );
    check
}

/// Prepared once per connection, since the server would otherwise plan them for each message.
pub(super) fn guards(same: &str, level: &str) -> String {
    format!(
        "PREPARE idem_guard (pg_catalog.xid8) AS {}; PREPARE idem_guard_shared (pg_catalog.xid8) AS {}",
        check("$1", None, level),
        check("$1", Some(same), level)
    )
}

/// Handles an error of the server in the guard, in COMMIT, or in an INSERT of staged messages between them.
async fn refused(txn: Txn, finished: usize, failure: Failure, in_insert: bool) -> CommitResult {
    let says = |text: &str| failure.code() == Some("22P02") && failure.says(text);
    let [ended, raced, changed] = [ENDED, RACED, CHANGED].map(says);
    if changed {
        LOGGED.call_once(|| {
            tracing::warn!(
                "a handler of a batch left a temporary table, or changed the role, search_path, time zone or a similar \
             setting, which would affect later handlers: such batches are split until each message runs singly; set \
             `.reset_between_messages()`, or undo the change in the handler"
            )
        });
    }
    let undone = match failure.code().unwrap_or_default() {
        // The guard has refused, so COMMIT was not run.
        "22P02" if ended => CommitResult::RolledBack,
        "22P02" if raced => CommitResult::Retry(RACED.into()),
        // The aborted transaction may be another one, begun after the handler ended this one.
        "25P02" => CommitResult::Swallowed,
        // 57014: the statement timed out. A server that was frozen for a while reports this as soon as it resumes, and
        // nothing was written (PostgreSQL manual, 20.11.1).
        "40001" | "40P01" | "57014" => CommitResult::Retry(failure.into_error()),
        // The connection has lost its guard or its INSERT, and is closed.
        "26000" => CommitResult::Refused("the handler has deallocated idem's own prepared statements".into()),
        "42501" | "25006" if in_insert => CommitResult::Refused(
            format!(
                "the messages that the handler staged cannot be written with the role or in the mode that it has set: undo \
                 SET ROLE and SET TRANSACTION READ ONLY before it returns ({})",
                failure.into_error()
            )
            .into(),
        ),
        "55P03" if in_insert => CommitResult::Busy(failure.into_error()),
        _ if in_insert => match failure.fault(About::Messages) {
            StoreError::Message(error) => CommitResult::Refused(error),
            // Nothing was committed, and no message is at fault: the disk is full, or the table is missing.
            fault => CommitResult::Unknown(fault),
        },
        // 40003 is "statement completion unknown". Out of resources (class 53), or as a standby (25006), the server is
        // in no state to be trusted, and the message is not at fault.
        code if code == "40003" || code == "25006" || code.starts_with("53") => {
            return CommitResult::Unknown(failure.into());
        }
        _ => CommitResult::Refused(failure.into_error()),
    };
    undo(txn, finished, undone).await
}

/// Warns only once that a batch was split because of its settings.
static LOGGED: std::sync::Once = std::sync::Once::new();

/// Rolls back a transaction that was not committed, and returns the result: `undone`, unless its handler had ended it. Only a
/// guard that did not pass, so that nothing had finished, leaves that open.
async fn undo(txn: Txn, finished: usize, undone: CommitResult) -> CommitResult {
    let txn_handle = txn.txn_handle().map(Box::new);
    match rollback(txn).await {
        Ok(TxnOutcome::CommittedEarly) => CommitResult::CommittedEarly(txn_handle.unwrap_or_default()),
        Ok(TxnOutcome::Ended) if finished == 0 => CommitResult::RolledBack,
        Err(fault) if finished == 0 => CommitResult::NotSent(fault, txn_handle),
        // The refusal stands, whether or not the connection can be reused.
        _ => undone,
    }
}
