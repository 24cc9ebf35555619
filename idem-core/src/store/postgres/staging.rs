//! Writes staged messages that do not travel with COMMIT, and handles the refusal of those that do.

use sqlx::Row as _;

use crate::store::{CommitResult, StoreError, Unscheduled};

use super::answer::{About, Failure};
use super::commit::of_end;
use super::limits::OWN;
use super::local_sql::RACED;
use super::txn::Txn;
use super::writes::{Writes, claim_wait};
use super::{Postgres, local, local_sql, outbox_sql};

/// The result of an INSERT of staged messages in front of guard and COMMIT.
pub(super) enum Staging {
    /// It stands if the transaction is committed.
    Inserted(Unscheduled),
    /// The server has refused it, or a trigger has kept it out; nothing may be committed.
    Refused(Option<Failure>),
    /// There was no answer.
    Lost(StoreError),
}

/// Inserts many or large messages by bound values, behind a guard. Another one follows, as for all others.
pub(super) async fn insert(store: &Postgres, txn: &mut Txn, writes: &Writes) -> Staging {
    let mut unscheduled = Unscheduled::default();
    if let Some(local) = &writes.local {
        let wait = claim_wait(local.len(), txn.lock_wait, txn.batch);
        let query = local.bind(store.query(&local_sql::stage()), wait);
        match txn.connection.bound(OWN, query).await {
            Ok(rows) => unscheduled = local::unscheduled(&rows),
            Err(failure @ Failure::Refused(_)) => return Staging::Refused(Some(failure)),
            Err(lost) => return Staging::Lost(lost.into()),
        }
    }
    let Some(staged) = &writes.staged else { return Staging::Inserted(unscheduled) };
    let query = staged.bind(store.query(&outbox_sql::stage_many()));
    let rows = match txn.connection.bound(OWN, query).await {
        Ok(rows) => rows,
        Err(failure @ Failure::Refused(_)) => return Staging::Refused(Some(failure)),
        Err(lost) => return Staging::Lost(lost.into()),
    };
    let inserted = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
    match inserted == i64::try_from(staged.len()).ok() {
        true => Staging::Inserted(unscheduled),
        false => Staging::Refused(None),
    }
}

/// Ends a transaction whose staged messages were not inserted, and returns the result: nothing of it is in the database,
/// unless the handler has committed it.
pub(super) async fn refused(txn: Txn, failure: Option<Failure>) -> CommitResult {
    of_end(txn, refusal(failure)).await
}

/// Returns what the refusal of their INSERT means.
fn refusal(failure: Option<Failure>) -> CommitResult {
    let Some(failure) = failure else {
        let text = "PostgreSQL has stored no row: a BEFORE INSERT trigger of outbox_messages returns NULL";
        return CommitResult::Refused(text.into());
    };
    match failure.code().unwrap_or_default() {
        // The transaction was aborted before.
        "25P02" => CommitResult::Swallowed,
        "42501" | "25006" => CommitResult::Refused(
            format!(
                "the messages that the handler staged cannot be written with the role or in the mode that it has set: undo \
                 SET ROLE and SET TRANSACTION READ ONLY before it returns ({})",
                failure.into_error()
            )
            .into(),
        ),
        "26000" => CommitResult::Refused("a handler has deallocated idem's own statements".into()),
        "55P03" => CommitResult::Busy(failure.into_error()),
        "40001" | "40P01" | "57014" => CommitResult::Retry(failure.into_error()),
        "22P02" if failure.says(RACED) => CommitResult::Retry(RACED.into()),
        _ => match failure.fault(About::Messages) {
            StoreError::Message(error) => CommitResult::Refused(error),
            // Nothing was committed, and no message is at fault: the disk is full, or the table is missing.
            fault => CommitResult::Unknown(fault),
        },
    }
}
