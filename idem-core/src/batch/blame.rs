//! Finds the message that caused the failure of a batch.

use crate::caught::dropped;
use crate::execute::Failure;
use crate::runtime::{Ended, Pipeline, Wait};
use crate::{Reason, Store};

use super::item::Verdict;
use super::round::TransactionResult;

/// Attributes a failure. If the call ran one message, it is that message's; if it ran several, halving finds the
/// message.
fn blamed(places: &[usize]) -> TransactionResult {
    match places {
        [only] => TransactionResult::Without(vec![*only]),
        _ => TransactionResult::Split,
    }
}

impl<S: Store> Pipeline<S> {
    /// Returns what the result of a run means for its batch. `None`: the batch is processed. `places`: the items of the
    /// handler call in which the run has ended; empty if all handlers had returned. `ended_by`: those of the call that ended
    /// the transaction, if it has ended; empty if that is unknown.
    pub(super) fn blame(&self, ran: Ended, places: &[usize], ended_by: &[usize]) -> Option<TransactionResult> {
        Some(match ran {
            Ended::Done(_) => return None,
            Ended::Failed(failure) if failure.next == Err(Reason::RolledBack) => blamed(ended_by),
            Ended::Again(error) if self.store.deadlocked(error.as_ref()) => {
                self.throttle.shrink();
                TransactionResult::Split
            }
            // Another transaction holds the claim of a local message, for as long as its handler runs; or it is another batch,
            // which waits for a claim of this one: the claims of local messages come behind those of the batch, and are not
            // sorted with them. They wait for less time than the database takes to find a deadlock.
            Ended::Park(Wait::Claim) => {
                self.throttle.narrow();
                TransactionResult::Split
            }
            // Any other race, or a time limit at the commit: one message may cause it each time (a deferred trigger, a
            // limit that a handler left behind), which says nothing about other batches. The message is retried when it
            // runs alone.
            Ended::Again(error) => {
                dropped("the error of a handler", error);
                blamed(places)
            }
            // The database refuses a COMMIT where a message has a claim. All others may run again, and the message that is to
            // blame is found out when it runs alone.
            Ended::Failed(Failure { left_by: Some(ticket), .. }) => {
                tracing::error!(
                    transaction = ticket.number,
                    "a handler ran COMMIT in a batch, and the database has not refused it: messages without a claim run again; all \
                     others count as processed although their handlers may not have run, which happens only if the trigger \
                     `refuse_commit` is disabled, or the handler has replaced SQLite's commit hook"
                );
                TransactionResult::Split
            }
            Ended::Failed(_) => blamed(places),
            Ended::Broke(fault) => {
                self.outage.report(&fault);
                TransactionResult::All(Verdict::Broke)
            }
            Ended::Park(_) => TransactionResult::All(Verdict::PutOff),
            Ended::Lost | Ended::Stopped => TransactionResult::All(Verdict::Stopped),
        })
    }
}
