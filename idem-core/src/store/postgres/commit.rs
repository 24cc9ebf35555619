//! The end of a transaction: guard and COMMIT, or ROLLBACK.

use sqlx::{AssertSqlSafe, Row as _};

use crate::BoxError;
use crate::store::{CommitResult, RollbackResult, StoreError};

use super::answer::Failure;
use super::clean::PREPARED;
use super::connection::Answer;
use super::guard::{CHANGED, ENDED, check};
use super::limits::OWN;
use super::prepared;
use super::txn::{Txn, not_answered};

/// Runs guard and COMMIT in one string: if the guard fails, the COMMIT is not run.
pub(super) async fn commit(mut txn: Txn) -> CommitResult {
    if !txn.connection.is_usable() {
        return CommitResult::NotSent(not_answered(), txn.ticket().map(Box::new));
    }
    // Reads what the handler left unread, and so finds out whether the server has closed the connection meanwhile.
    if let Err(lost) = txn.connection.flush().await {
        return CommitResult::NotSent(lost.into(), txn.ticket().map(Box::new));
    }
    let (text, needed) = question(&txn);
    let mut answer = txn.connection.run(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await;
    if answer.failure.is_none() && answer.finished < needed {
        // This answers a COPY of the handler. The answer to the guard and COMMIT is still to come, and COMMIT may be
        // refused.
        answer = txn.connection.read_on(OWN).await;
    }
    let Answer { finished, rows, failure } = answer;
    let failure = match failure {
        None if finished < needed => {
            return CommitResult::Unknown(StoreError::ConnectionLost("the handler left an answer unread".into()));
        }
        None => {
            txn.put_back(&rows).await;
            return CommitResult::Done;
        }
        // Guard and COMMIT were answered; the cleanup after them failed. The connection is closed.
        Some(_) if finished >= needed => return CommitResult::Done,
        Some(Failure::Lost(error)) => return CommitResult::Unknown(StoreError::ConnectionLost(error)),
        Some(failure @ Failure::Refused(_)) => failure,
    };
    refused(txn, finished, failure).await
}

/// Returns guard, COMMIT and cleanup in one string, and the number of statements up to and including COMMIT.
fn question(txn: &Txn) -> (String, usize) {
    let durable = txn.connection.is_durable().then(|| txn.connection.session().synchronous_commit());
    let same = (txn.shared && !txn.connection.resets()).then(|| txn.connection.session().same());
    // One more statement, which permits the COMMIT that follows it.
    let (leave, needed) = match &txn.xid {
        Some(xid) if txn.batch => (format!("; SELECT pg_catalog.set_config('idem.commit', '{xid}', true)"), 3),
        _ => (String::new(), 2),
    };
    let text = match &txn.xid {
        // The transaction id comes from the server and consists of digits.
        Some(xid) if txn.connection.is_pooled() => {
            format!("{}{leave}; COMMIT", check(&format!("'{xid}'::pg_catalog.xid8"), same, durable))
        }
        Some(xid) if same.is_some() => format!("EXECUTE idem_guard_shared('{xid}'){leave}; COMMIT"),
        Some(xid) => format!("EXECUTE idem_guard('{xid}'){leave}; COMMIT"),
        // An aborted transaction answers COMMIT with ROLLBACK and no error; any statement before it raises one.
        None => "SELECT 1; COMMIT".to_owned(),
    };
    (text + &txn.cleaning(), needed)
}

/// Handles an error of the server in the guard or COMMIT.
async fn refused(txn: Txn, finished: usize, failure: Failure) -> CommitResult {
    // The guard has refused, so COMMIT was not run: the end of the transaction can be asked for on another connection.
    let ticket = txn.ticket().map(Box::new);
    let unknown = |error| CommitResult::NotSent(StoreError::ConnectionLost(error), ticket);
    let says = |text: &str| matches!(&failure, Failure::Refused(error) if error.code() == "22P02" && error.message().contains(text));
    let ended = says(ENDED);
    if says(CHANGED) {
        TELL.call_once(|| {
            tracing::warn!(
                "a handler of a batch left a temporary table, or changed the role, search_path, time zone or a similar \
             setting, which would affect later handlers: such batches are split until each message runs singly; set \
             `.reset_between_messages()`, or undo the change in the handler"
            )
        });
    }
    match failure.code().unwrap_or_default() {
        "22P02" if ended => match fate(txn).await {
            TxnEnd::Undone | TxnEnd::Ended => CommitResult::RolledBack,
            TxnEnd::Committed => CommitResult::CommittedEarly,
            TxnEnd::Unknown(error) => unknown(error),
        },
        "25P02" if txn.xid.is_none() => closed(txn, finished, |_| CommitResult::Swallowed, failure).await,
        // The aborted transaction may be another one, begun after the handler ended this one.
        "25P02" => match fate(txn).await {
            TxnEnd::Undone => CommitResult::Swallowed,
            TxnEnd::Ended => CommitResult::RolledBack,
            TxnEnd::Committed => CommitResult::CommittedEarly,
            TxnEnd::Unknown(error) => unknown(error),
        },
        // 57014: the statement timed out. A server that was frozen for a while reports this as soon as it resumes, and
        // nothing was written (PostgreSQL manual, 20.11.1).
        "40001" | "40P01" | "57014" => closed(txn, finished, CommitResult::Retry, failure).await,
        // The handler ran DEALLOCATE ALL. The connection has lost its guard, and is closed.
        "26000" => {
            let text = "the handler ran DEALLOCATE ALL, which removes idem's own statements as well";
            closed(txn, finished, |_| CommitResult::Refused(text.into()), failure).await
        }
        // 40003 is "statement completion unknown". Out of resources (class 53), or as a standby (25006), the server is
        // in no state to be trusted, and the message is not at fault.
        code if code == "40003" || code == "25006" || code.starts_with("53") => CommitResult::Unknown(failure.into()),
        _ => closed(txn, finished, CommitResult::Refused, failure).await,
    }
}

/// Warns only once that a batch was split because of its settings.
static TELL: std::sync::Once = std::sync::Once::new();

/// Rolls back after the guard or COMMIT was refused, and returns the result. If the guard itself gave no answer, the
/// handler may have ended the transaction.
async fn closed(
    txn: Txn,
    finished: usize,
    answer: impl FnOnce(BoxError) -> CommitResult,
    failure: Failure,
) -> CommitResult {
    match rollback(txn).await {
        Ok(RollbackResult::CommittedEarly) => CommitResult::CommittedEarly,
        Ok(RollbackResult::Ended) if finished == 0 => CommitResult::RolledBack,
        // The refusal stands, whether or not the connection can be reused.
        _ => answer(failure.into_error()),
    }
}

/// The fate of the transaction that made the claim.
enum TxnEnd {
    /// It was open, and was rolled back.
    Undone,
    /// The handler ended it by ROLLBACK, or prepared it, which was undone.
    Ended,
    /// The handler ended it by COMMIT.
    Committed,
    Unknown(BoxError),
}

/// Ends the open transaction, and asks for the status of the transaction that made the claim.
async fn fate(mut txn: Txn) -> TxnEnd {
    let xid = txn.xid.take().unwrap_or_default();
    let ours = format!("pg_catalog.pg_current_xact_id_if_assigned() IS NOT DISTINCT FROM '{xid}'::pg_catalog.xid8");
    let status = format!("SELECT pg_catalog.pg_xact_status('{xid}'::pg_catalog.xid8){}", txn.cleaning());
    let text = format!("SELECT {ours}, {PREPARED}; ROLLBACK; {status}");
    let mut answer = txn.connection.run(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await;
    if answer.failure.as_ref().and_then(Failure::code) == Some("25P02") {
        // An aborted transaction cannot be asked for its id; it is assumed to be the one that made the claim.
        txn.connection.clear_failure();
        let text = format!("ROLLBACK; SELECT true, {PREPARED}; {status}");
        answer = txn.connection.run(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await;
    }
    let Answer { finished, rows, failure } = answer;
    // An error after these three statements is one of the cleanup, and the connection is closed.
    if let Some(failure) = failure.filter(|_| finished < 3) {
        return TxnEnd::Unknown(failure.into_error());
    }
    // Other handlers of the batch may have failed because of it: from now on sessions are checked, at one round trip
    // each.
    if rows.first().and_then(|row| row.try_get(1).ok()) == Some(true) {
        txn.connection.find_prepared();
    }
    let ended = !rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
    let status = rows.get(1).and_then(|row| row.try_get::<Option<String>, _>(0).ok().flatten());
    match status.as_deref() {
        // The session of a handler that ends transactions is in an unknown state: it is closed.
        Some("aborted") if ended => TxnEnd::Ended,
        Some("aborted") => {
            txn.put_back(&rows).await;
            TxnEnd::Undone
        }
        Some("committed") => TxnEnd::Committed,
        Some("in progress") => match prepared::roll_back(&mut txn.connection, &xid).await {
            Ok(true) => TxnEnd::Ended,
            Ok(false) => TxnEnd::Unknown("the handler ended its transaction, which still runs".into()),
            Err(failure) => TxnEnd::Unknown(failure.into_error()),
        },
        // Too old to be known.
        other => {
            let state = other.unwrap_or("not known");
            TxnEnd::Unknown(format!("the transaction was ended by its handler, and is {state}").into())
        }
    }
}

/// Rolls back. An answer to ROLLBACK shows that the connection is alive.
pub(super) async fn rollback(mut txn: Txn) -> Result<RollbackResult, StoreError> {
    if !txn.connection.is_usable() {
        return Err(not_answered());
    }
    txn.connection.flush().await?;
    if txn.xid.is_some() {
        return match fate(txn).await {
            TxnEnd::Undone => Ok(RollbackResult::RolledBack),
            TxnEnd::Ended => Ok(RollbackResult::Ended),
            TxnEnd::Committed => Ok(RollbackResult::CommittedEarly),
            TxnEnd::Unknown(error) => Err(StoreError::ConnectionLost(error)),
        };
    }
    let text = format!("ROLLBACK{}", txn.cleaning());
    match txn.connection.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await {
        Ok(rows) => {
            txn.put_back(&rows).await;
            Ok(RollbackResult::RolledBack)
        }
        // An error is an answer, too; the connection is closed, since its state is unexpected.
        Err(Failure::Refused(_)) => Ok(RollbackResult::RolledBack),
        Err(lost) => Err(lost.into()),
    }
}
