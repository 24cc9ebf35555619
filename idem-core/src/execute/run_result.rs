//! The result of a handler run.

use std::time::Duration;

use crate::advice::Advice;
use crate::caught::dropped;
use crate::store::{CommitResult, StoreError, Ticket, UNBEGUN};
use crate::{BoxError, Reason};

/// The result of a handler run in a transaction that holds the claim.
pub(crate) enum RunResult {
    Processed,
    /// Rolled back, and charged to the message.
    Failed(Failure),
    /// The handler ran COMMIT in this transaction: the claim stands, and perhaps some of the effects.
    CommittedEarly(Box<Ticket>),
    /// Rolled back; a new transaction may succeed.
    Retry(BoxError),
    /// Rolled back: another transaction holds the claim of a local message. No message is charged.
    Busy(BoxError),
    /// The connection was lost, or COMMIT got no response. No message is charged; the claim shows whether it committed.
    Broke(StoreError),
    /// Rolled back before the handler was called, since a suspect runs or waits.
    PutOff,
    /// The run was cut off by the end of the worker.
    Stopped,
}

/// A failure that is charged to a message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: String,
    /// Set if no further attempt can succeed.
    pub(crate) given_up: Option<Reason>,
    /// Set if the handler says that no attempt before this delay can succeed.
    pub(crate) not_before: Option<Duration>,
}

impl RunResult {
    pub(crate) fn of(committed: CommitResult) -> Self {
        match committed {
            CommitResult::Done => Self::Processed,
            CommitResult::Swallowed => Self::Failed(Failure {
                error: "the handler swallowed a SQL error, so that its transaction was aborted: return the error, or \
                        run the statement in a nested transaction"
                    .to_owned(),
                given_up: None,
                not_before: None,
            }),
            CommitResult::RolledBack => Self::Failed(Failure {
                error: "the handler ended the transaction by ROLLBACK or PREPARE TRANSACTION: return an error instead"
                    .to_owned(),
                given_up: Some(Reason::RolledBack),
                not_before: None,
            }),
            CommitResult::CommittedEarly(ticket) => Self::CommittedEarly(ticket),
            CommitResult::CommitRefused => Self::Failed(Failure::commit_refused()),
            CommitResult::Refused(error) => Self::Failed(Failure::of(&error)),
            CommitResult::Retry(error) => Self::Retry(error),
            CommitResult::Busy(error) => Self::Busy(error),
            CommitResult::Unknown(fault) | CommitResult::NotSent(fault, _) => Self::Broke(fault),
        }
    }

    /// Adds to the error of a handler why its later statements had no transaction.
    pub(crate) fn unbegun(mut self) -> Self {
        if let Self::Failed(failure) = &mut self {
            failure.error.extend(["; ", UNBEGUN]);
        }
        self
    }
}

impl Failure {
    /// The handler exceeded this timeout.
    pub(crate) fn late(timeout: Duration) -> Self {
        let error = format!(
            "the handler exceeded its timeout of {timeout:?}: raise `.handler_timeout(..)`, or `HandlerOptions::timeout(..)` if \
             it has its own"
        );
        Self { error, given_up: None, not_before: None }
    }

    /// The handler ran COMMIT, and the database refused it.
    pub(crate) fn commit_refused() -> Self {
        let error = "the handler ran COMMIT, which was refused; nothing was written: return Ok(()), and idem commits";
        Self { error: error.to_owned(), given_up: Some(Reason::Committed), not_before: None }
    }

    /// The handler returned this error.
    pub(crate) fn returned(error: BoxError) -> Self {
        let failure = Self::of(&error);
        dropped("the error of a handler", error);
        failure
    }

    pub(crate) fn of(error: &BoxError) -> Self {
        let (given_up, not_before) = match Advice::of(error) {
            Some(Advice::Permanent) => (Some(Reason::Permanent), None),
            Some(Advice::RetryAfter(delay)) => (None, Some(delay)),
            None => (None, None),
        };
        Self { error: crate::error::text(error.as_ref()), given_up, not_before }
    }
}
