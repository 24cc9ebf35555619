//! Whose failure the failure of a batch is.

use crate::execute::RunResult;
use crate::runtime::Pipeline;
use crate::{Reason, Store};

use super::round::Round;

/// Whose call a run has failed in.
#[derive(Clone, Copy)]
pub(super) struct Culprit<'a> {
    /// The items of the call; none of them where all had returned.
    pub(super) places: &'a [usize],
    /// Whether a transaction that was ended was ended by this call, rather than by one before it.
    pub(super) ended_it: bool,
}

impl Culprit<'_> {
    /// What was found out as all handlers had returned.
    pub(super) const NOBODY: Self = Self { places: &[], ended_it: false };

    /// A failure of a call that ran one message is known by its place; of a call that ran many, by halving.
    fn blamed(self) -> Round {
        match self.places {
            [only] => Round::Without(vec![*only]),
            _ => Round::Split,
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// What the end of a run means for its batch, of which the items at `new` hold claims. `None`: it is processed.
    pub(super) fn blame(&self, ran: RunResult, culprit: Culprit<'_>, new: &[usize]) -> Option<Round> {
        Some(match ran {
            RunResult::Processed => return None,
            // Behind the end of the transaction nothing can be written, so that it is not known who ended it.
            RunResult::Failed(failure) if failure.given_up == Some(Reason::RolledBack) && !culprit.ended_it => {
                Round::Split
            }
            RunResult::Failed(_) => culprit.blamed(),
            // Any other lost race of a handler is tried anew where its message is alone.
            RunResult::Retry(error) if culprit.places.is_empty() || self.store.deadlocked(error.as_ref()) => {
                Round::Deadlock
            }
            RunResult::Retry(_) => culprit.blamed(),
            RunResult::CommittedEarly => Round::CommittedEarly(new.to_vec()),
            RunResult::Broke(fault) => {
                self.outage.report(&fault);
                Round::Broke
            }
            RunResult::Stopped => Round::Stopped,
        })
    }
}
