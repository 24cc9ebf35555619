//! The result of a handler run.

use std::time::Duration;

use crate::advice::Advice;
use crate::caught::dropped;
use crate::registry::Unfit;
use crate::store::{CommitResult, RowResult, StoreError, Ticket, UNBEGUN};
use crate::{BoxError, Outcome, Reason, RetryPolicy, telemetry};

/// The result of a handler run in a transaction that holds the claim.
pub(crate) enum RunResult {
    Processed,
    /// Charged to the message. Rolled back, unless the handler ran COMMIT.
    Failed(Failure),
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

/// A failure that is charged to a message, and the resulting state of the message. Also the state of one that has not failed, or
/// that can never run.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// How often the message has failed, including this failure; 0 until that is [counted](Self::counted).
    pub(crate) attempts: u32,
    /// The delay after which it runs again, or the reason why it is dead. Until it is counted, the delay is the least one
    /// with which another attempt can succeed.
    pub(crate) next: Result<Duration, Reason>,
    pub(crate) error: String,
    /// The transaction that its handler has committed: the claim stands, if it has one, and perhaps some of the effects.
    /// Until the failure is recorded, the message counts as processed.
    pub(crate) left_by: Option<Box<Ticket>>,
}

impl RunResult {
    pub(crate) fn of(committed: CommitResult) -> Self {
        match committed {
            CommitResult::Done => Self::Processed,
            CommitResult::Swallowed => Self::Failed(Failure::new(
                Ok(Duration::ZERO),
                "the handler swallowed a SQL error, so that its transaction was aborted: return the error, or run the statement \
                 in a nested transaction",
            )),
            CommitResult::RolledBack => Self::Failed(Failure::new(
                Err(Reason::RolledBack),
                "the handler ended the transaction by ROLLBACK or PREPARE TRANSACTION: return an error instead",
            )),
            CommitResult::CommittedEarly(ticket) => Self::Failed(Failure::committed(ticket)),
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
    pub(crate) fn new(next: Result<Duration, Reason>, error: impl Into<String>) -> Self {
        Self { attempts: 0, next, error: error.into(), left_by: None }
    }

    /// The state of a message that has not failed: it is due now.
    pub(crate) fn none() -> Self {
        Self::new(Ok(Duration::ZERO), "")
    }

    /// The state of a message that can never be passed to a handler.
    pub(crate) fn unfit(Unfit { reason, error }: Unfit) -> Self {
        Self::new(Err(reason), error)
    }

    /// Adds that the message has failed this often before, and decides what becomes of it.
    pub(crate) fn counted(mut self, before: u32, retry: &RetryPolicy) -> Self {
        self.attempts = before + 1;
        if let Ok(least) = self.next {
            self.next = retry.after(self.attempts).map(|delay| delay.max(least)).ok_or(Reason::Exhausted);
        }
        self
    }

    /// The result of an inbox row.
    pub(crate) fn result(&self) -> RowResult {
        RowResult::Failed { next: self.next, error: self.error.clone() }
    }

    /// Logs the failure, which was recorded in this row, and returns the outcome of the message.
    pub(crate) fn logged(&self, row: impl Into<Option<i64>>) -> Outcome {
        telemetry::tell(row.into(), self.attempts, self.next, &self.error);
        match self.next {
            Ok(due) => Outcome::Scheduled { attempt: self.attempts, due },
            Err(reason) => Outcome::Dead { reason },
        }
    }

    /// The handler ran COMMIT in this transaction.
    pub(crate) fn committed(left_by: Box<Ticket>) -> Self {
        let error = "the handler ran COMMIT, so some of its writes may be committed: return Ok(()), and idem commits";
        Self { left_by: Some(left_by), ..Self::new(Err(Reason::Committed), error) }
    }

    /// The handler exceeded this timeout.
    pub(crate) fn late(timeout: Duration) -> Self {
        let error = format!(
            "the handler exceeded its timeout of {timeout:?}: raise `.handler_timeout(..)`, or `HandlerOptions::timeout(..)` if \
             it has its own"
        );
        Self::new(Ok(Duration::ZERO), error)
    }

    /// The handler ran COMMIT, and the database refused it.
    pub(crate) fn commit_refused() -> Self {
        let error = "the handler ran COMMIT, which was refused; nothing was written: return Ok(()), and idem commits";
        Self::new(Err(Reason::Committed), error)
    }

    /// The handler returned this error.
    pub(crate) fn returned(error: BoxError) -> Self {
        let failure = Self::of(&error);
        dropped("the error of a handler", error);
        failure
    }

    pub(crate) fn of(error: &BoxError) -> Self {
        let next = match Advice::of(error) {
            Some(Advice::Permanent) => Err(Reason::Permanent),
            Some(Advice::RetryAfter(delay)) => Ok(delay),
            None => Ok(Duration::ZERO),
        };
        Self::new(next, crate::error::text(error.as_ref()))
    }
}
