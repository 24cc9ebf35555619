//! Finds the message that caused the failure of a batch.

use crate::caught::dropped;
use crate::execute::RunResult;
use crate::runtime::Pipeline;
use crate::{Reason, Store};

use super::opening::TransactionResult;

/// The handler call in which a run failed.
#[derive(Clone, Copy)]
pub(super) struct Culprit<'a> {
    /// The items of the call; empty if all handlers had returned.
    pub(super) places: &'a [usize],
    /// The items of the call that ended the transaction, if it has ended; empty if that is unknown.
    pub(super) ended_by: &'a [usize],
}

/// Attributes a failure. If the call ran one message, it is that message's; if it ran several, halving finds the
/// message.
fn blamed(places: &[usize]) -> TransactionResult {
    match places {
        [only] => TransactionResult::Without(vec![*only]),
        _ => TransactionResult::Split,
    }
}

impl<S: Store> Pipeline<S> {
    /// Returns what the result of a run means for its batch. `None`: the batch is processed.
    pub(super) fn blame(&self, ran: RunResult, culprit: Culprit<'_>) -> Option<TransactionResult> {
        Some(match ran {
            RunResult::Processed => return None,
            RunResult::Failed(failure) if failure.given_up == Some(Reason::RolledBack) => blamed(culprit.ended_by),
            RunResult::Failed(_) => blamed(culprit.places),
            RunResult::Retry(error) if self.store.deadlocked(error.as_ref()) => TransactionResult::Deadlock,
            // The claims of local messages come behind those of the batch, and are not sorted with them. They wait for less
            // time than the database takes to find a deadlock.
            RunResult::Busy(_) => TransactionResult::Busy,
            // Any other race, or a time limit at the commit: one message may cause it each time (a deferred trigger, a
            // limit that a handler left behind), which says nothing about other batches. The message is retried when it
            // runs alone.
            RunResult::Retry(error) => {
                dropped("the error of a handler", error);
                blamed(culprit.places)
            }
            // The database refuses a COMMIT where a message has a claim. All others may run again, and the message that is to
            // blame is found out when it runs alone.
            RunResult::CommittedEarly(ticket) => {
                tracing::error!(
                    transaction = ticket.number,
                    "a handler ran COMMIT in a batch, and the database has not refused it: messages without a claim run again; all \
                     others count as processed although their handlers may not have run, which happens only if the trigger \
                     `refuse_commit` is disabled, or the handler has replaced SQLite's commit hook"
                );
                TransactionResult::Split
            }
            RunResult::Broke(fault) => {
                self.outage.report(&fault);
                TransactionResult::Broke
            }
            RunResult::PutOff => TransactionResult::PutOff,
            RunResult::Stopped => TransactionResult::Stopped,
        })
    }
}
