//! What has failed, and what becomes of its message.

use std::time::Duration;

use crate::advice::Advice;
use crate::caught::dropped;
use crate::registry::Undeliverable;
use crate::store::{RowResult, StoreFacts, TxnHandle};
use crate::{BoxError, Outcome, Reason, RetryPolicy, telemetry};

/// A failed attempt of a message, and the resulting state of the message. Also the state of one that has not failed, or
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
    pub(crate) left_by: Option<Box<TxnHandle>>,
}

impl Failure {
    pub(crate) fn new(next: Result<Duration, Reason>, error: impl Into<String>) -> Self {
        Self { attempts: 0, next, error: error.into(), left_by: None }
    }

    /// The state of a message that can never be passed to a handler.
    pub(crate) fn undeliverable(Undeliverable { reason, error }: Undeliverable) -> Self {
        Self::new(Err(reason), error)
    }

    /// Whether it is such a state: no try has been counted, and there will be none.
    pub(crate) fn is_undeliverable(&self) -> bool {
        self.attempts == 0 && self.next.is_err()
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
        let error = self.error.clone();
        match self.next {
            Err(reason) if self.is_undeliverable() => RowResult::Dead { reason, error },
            next => RowResult::Failed { next, error },
        }
    }

    /// Logs the failure, which was recorded in this row of this store, and returns the outcome of the message.
    pub(crate) fn logged(&self, store: &StoreFacts, row: impl Into<Option<i64>>) -> Outcome {
        let row = row.into();
        self.logged_with(row, || store.show_row(row))
    }

    /// The same with this command, which shows the message.
    pub(crate) fn logged_with(&self, row: Option<i64>, show: impl Fn() -> String) -> Outcome {
        telemetry::log_failure(row, self.attempts, self.next, &self.error, show);
        match self.next {
            Ok(due) => Outcome::Scheduled { attempt: self.attempts, due },
            Err(reason) => Outcome::Dead { reason },
        }
    }

    /// The handler ran COMMIT in this transaction.
    pub(crate) fn committed(left_by: Box<TxnHandle>) -> Self {
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
