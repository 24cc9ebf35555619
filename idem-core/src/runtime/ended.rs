//! The result of one try of a message, and why it waits for the next one.

use std::time::Duration;

use tracing::Span;

use crate::run::Failure;
use crate::store::{CommitResult, Identity, StoreError};
use crate::{BoxError, Outcome, Reason};

/// What became of one message in one try, be it a delivery or an inbox row. All steps between decode and the settlement of a
/// delivery (`process`), or the record of a row (`inbox/record.rs`), return it.
pub(crate) enum Ended {
    /// The message is processed, or taken over. This always follows a commit of this try, or of an earlier one that made the claim
    /// of a duplicate, and only this leads to an ack.
    Done(Outcome),
    /// The run has failed, and was rolled back, unless the handler had run COMMIT. `store_failure` (`process/mod.rs`) records the
    /// failure of a delivery, and `record` (`inbox/record.rs`) that of a row. Also of a message that can never be decoded.
    Failed(Failure),
    /// Rolled back, and no attempt is recorded. With the error of a lost race, `conclude` (`run/end.rs`) runs the message again
    /// at once, or counts a failure. Without an error, the message has to run alone, because others run without it.
    Again(Option<BoxError>),
    /// The message cannot run, or its failure cannot be recorded, now. No attempt is recorded. A delivery is parked by the
    /// reason; a row is given back, or kept for its codec or its failure.
    Park(Wait),
    /// The connection was lost in user code, or COMMIT got no response: only the claim or the row shows whether it committed.
    /// A delivery is then stored, and a row counts the loss (`broke`, `inbox/record.rs`).
    Broke(StoreError),
    /// The row is another process's now, or an operator has changed it. If the row has not run, its start is refunded; if it has,
    /// its result was not written.
    Lost,
    /// The end of the worker cut the try off. A delivery is released, and so is a row.
    Stopped,
}

/// Why a message waits. For a delivery `park/until.rs` has the waits, and `in_vain` there the times of the first four. For a row
/// `record` (`inbox/record.rs`) has the times.
pub(crate) enum Wait {
    /// For nothing of its own: the next try can start at once, or at the end of an outage, of a pause of the worker or of the run
    /// of an orphaned row.
    Free,
    /// For its claim, or that of a local message, which another transaction holds.
    Claim,
    /// For the database, which has not answered one of idem's own statements, or has lost the connection.
    Unanswered,
    /// For an operator: the database refuses what is written for this message, and works for others.
    Refused(BoxError),
    /// For this time: a row whose call another version of the service has made.
    After(Duration),
    /// For its codec, which has to fetch something before it can decode the message, or for another message of its handler that
    /// prepares.
    Codec,
    /// For the deliveries in front of it in this process: those of its ordering key, and one with the key of its message.
    Key,
    /// For its message, which is in the inbox, or may be: with an ordering key, the delivery is settled once the message is
    /// processed or dead, and later deliveries of the ordering key wait for that.
    Row(Box<InRow>),
}

/// A message that runs from the inbox.
pub(crate) struct InRow {
    pub(crate) identity: Identity,
    pub(crate) outcome: Outcome,
    /// The span of the try.
    pub(crate) span: Span,
}

impl Ended {
    /// Returns how a run has ended by the answer to its COMMIT.
    pub(crate) fn of(committed: CommitResult) -> Self {
        match committed {
            CommitResult::Done => Self::Done(Outcome::Processed),
            CommitResult::Swallowed => Self::Failed(Failure::new(
                Ok(Duration::ZERO),
                "the handler swallowed a SQL error, so that its transaction was aborted: return the error, or run the statement \
                 in a nested transaction",
            )),
            CommitResult::RolledBack => Self::Failed(Failure::new(
                Err(Reason::RolledBack),
                "the handler ended the transaction by ROLLBACK or PREPARE TRANSACTION: return an error instead",
            )),
            CommitResult::CommittedEarly(txn_handle) => Self::Failed(Failure::committed(txn_handle)),
            CommitResult::CommitRefused => Self::Failed(Failure::commit_refused()),
            CommitResult::Refused(error) => Self::Failed(Failure::of(&error)),
            CommitResult::Retry(error) => Self::Again(Some(error)),
            CommitResult::Busy(error) => {
                tracing::debug!(
                    error = error.to_string(),
                    "another transaction holds the claim of a local message; no attempt is recorded"
                );
                Self::Park(Wait::Claim)
            }
            CommitResult::Unknown(fault) | CommitResult::NotSent(fault, _) => Self::Broke(fault),
        }
    }

    /// Returns what became of another message that ran in the same transaction, or whose copy this one is.
    pub(crate) fn of_another(&self) -> Self {
        match self {
            // The row of a conflict counts its copies.
            Self::Done(Outcome::Dead { .. }) | Self::Failed(_) | Self::Again(_) => Self::Again(None),
            Self::Done(_) => Self::Done(Outcome::Duplicate),
            Self::Park(_) => Self::Park(Wait::Free),
            Self::Broke(_) => Self::Broke(StoreError::ConnectionLost("the connection was lost with a batch".into())),
            Self::Lost => Self::Lost,
            Self::Stopped => Self::Stopped,
        }
    }
}
