//! Decides what follows from a run: the rules that first deliveries and inbox rows share.
//!
//! A batch does not come here. It finds out whose failure it was (`batch/blame.rs`), and that message runs again,
//! alone.

use crate::routes::Route;
use crate::runtime::{Charge, Pipeline};
use crate::store::StoreError;
use crate::{DeliveryOrder, Reason, RetryPolicy, Store};

use super::{Failure, RunResult};

/// How often a transaction that lost against a concurrent one is retried before that counts as a failure.
const IN_PLACE: u32 = 5;

/// The action that follows the run of a single message.
pub(crate) enum Conclusion {
    Processed,
    /// Run it again at once, in a new transaction.
    Retry,
    /// Record this failure.
    Charge(Charge),
    /// Another transaction holds the claim of a local message, perhaps for as long as a handler runs. No message is
    /// charged; run it again later.
    Busy,
    /// No message is charged; the claim shows whether it committed.
    Broke(StoreError),
    /// The handler was not called, since a suspect comes first: run it again when that has run.
    PutOff,
    Stopped,
}

impl RunResult {
    /// Decides what follows from the run of a message that has failed `attempts` times before, and lost `rounds` races
    /// since.
    fn conclude(self, attempts: u32, rounds: u32, retry: &RetryPolicy) -> Conclusion {
        let attempts = attempts + 1;
        let charge = |failure: Failure| {
            let next = match failure.given_up {
                Some(reason) => Err(reason),
                None => {
                    let delay = retry.after(attempts).ok_or(Reason::Exhausted);
                    delay.map(|delay| delay.max(failure.not_before.unwrap_or_default()))
                }
            };
            Conclusion::Charge(Charge::new(attempts, next, failure.error))
        };
        match self {
            Self::Processed => Conclusion::Processed,
            Self::Retry(error) if rounds < IN_PLACE => {
                // The text of the error is user code, and may panic, as its drop may.
                let Failure { error, .. } = Failure::returned(error);
                tracing::debug!(error, "lost against a concurrent transaction; tried again");
                Conclusion::Retry
            }
            Self::Retry(error) => charge(Failure::returned(error)),
            Self::Busy(error) => {
                tracing::debug!(error = error.to_string(), "the claim of a local message is held; tried again later");
                Conclusion::Busy
            }
            Self::Failed(failure) => charge(failure),
            Self::CommittedEarly(ticket) => Conclusion::Charge(Charge::committed(attempts, ticket)),
            Self::Broke(fault) => Conclusion::Broke(fault),
            Self::PutOff => Conclusion::PutOff,
            Self::Stopped => Conclusion::Stopped,
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Does [`RunResult::conclude`] with the handler's retry policy, and reports a lost connection.
    ///
    /// With an order, a delay that the handler asks for is at most the longest one of the policy. Until the delay
    /// elapses, later messages of the ordering key are not stored, and the broker may delete those that it has not
    /// delivered.
    pub(crate) fn conclude(&self, route: &Route<S>, mut ran: RunResult, attempts: u32, rounds: u32) -> Conclusion {
        let retry = &route.retry;
        match &mut ran {
            RunResult::Broke(fault) => self.outage.report(fault),
            RunResult::Failed(failure) if self.settings.order != DeliveryOrder::None => {
                failure.not_before = failure.not_before.map(|delay| delay.min(retry.longest()));
            }
            _ => {}
        }
        ran.conclude(attempts, rounds, retry)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Formats the conclusion of a run, for comparison.
    fn concluded(ran: RunResult, attempts: u32, rounds: u32) -> String {
        let retry = RetryPolicy::new().max_attempts(3);
        match ran.conclude(attempts, rounds, &retry) {
            Conclusion::Processed => "processed".to_owned(),
            Conclusion::Retry => "retry".to_owned(),
            Conclusion::Charge(Charge { attempts, next: Ok(_), .. }) => format!("scheduled after {attempts}"),
            Conclusion::Charge(Charge { attempts, next: Err(reason), .. }) => {
                format!("dead after {attempts}: {reason:?}")
            }
            Conclusion::Busy => "busy".to_owned(),
            Conclusion::Broke(_) => "broke".to_owned(),
            Conclusion::PutOff => "put off".to_owned(),
            Conclusion::Stopped => "stopped".to_owned(),
        }
    }

    fn failed(given_up: Option<Reason>) -> RunResult {
        RunResult::Failed(Failure { error: "failed".to_owned(), given_up, not_before: None })
    }

    #[test]
    fn an_advised_delay_is_the_least_delay_and_costs_an_attempt() {
        let retry = RetryPolicy::new().max_attempts(2).min_delay(Duration::from_secs(60)).factor(1.0);
        let next = |attempts, not_before| {
            let failure = Failure { error: String::new(), given_up: None, not_before: Some(not_before) };
            match RunResult::Failed(failure).conclude(attempts, 0, &retry) {
                Conclusion::Charge(charge) => charge.next,
                _ => panic!("not charged"),
            }
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(next(0, hour), Ok(hour));
        assert!(next(0, Duration::from_secs(1)).unwrap() >= Duration::from_secs(60), "the policy has the longer delay");
        assert_eq!(next(1, hour), Err(Reason::Exhausted));
    }

    #[test]
    fn a_run_has_the_same_conclusion_wherever_it_ran() {
        let lost_race = || RunResult::Retry("serialization failure".into());
        let table = [
            (RunResult::Processed, 0, 0, "processed"),
            (failed(None), 0, 0, "scheduled after 1"),
            (failed(None), 1, IN_PLACE, "scheduled after 2"),
            (failed(None), 2, 0, "dead after 3: Exhausted"),
            (failed(Some(Reason::Permanent)), 0, 0, "dead after 1: Permanent"),
            (lost_race(), 0, 0, "retry"),
            (lost_race(), 2, IN_PLACE - 1, "retry"),
            (lost_race(), 0, IN_PLACE, "scheduled after 1"),
            (lost_race(), 2, IN_PLACE, "dead after 3: Exhausted"),
            (RunResult::Busy("lock timeout".into()), 2, IN_PLACE, "busy"),
            (RunResult::CommittedEarly(Box::default()), 1, 0, "dead after 2: Committed"),
            (RunResult::Broke(StoreError::LockTimeout), 2, 0, "broke"),
            (RunResult::PutOff, 2, 0, "put off"),
            (RunResult::Stopped, 2, 0, "stopped"),
        ];
        for (ran, attempts, rounds, expected) in table {
            assert_eq!(concluded(ran, attempts, rounds), expected);
        }
    }
}
