//! Decides what follows from a run: the rules that first deliveries and inbox rows share.
//!
//! A batch does not come here. It finds out whose failure it was (`batch/blame.rs`), and that message runs again,
//! alone.

use crate::routes::Route;
use crate::runtime::{Ended, Pipeline};
use crate::{DeliveryOrder, RetryPolicy, Store};

use super::Failure;

/// How often a transaction that lost against a concurrent one is retried before that counts as a failure.
const IN_PLACE: u32 = 5;

impl Ended {
    /// Decides what follows from the run of a message that has failed `attempts` times before, and lost `rounds` races
    /// since: a failure says what becomes of its message. Returns `None` if it runs again at once, in a new transaction.
    fn conclude(self, attempts: u32, rounds: u32, retry: &RetryPolicy) -> Option<Self> {
        Some(match self {
            Self::Again(error) if rounds < IN_PLACE => {
                // The text of the error is user code, and may panic, as its drop may.
                let Failure { error, .. } = Failure::returned(error);
                tracing::debug!(error, "lost against a concurrent transaction; tried again");
                return None;
            }
            Self::Again(error) => Self::Failed(Failure::returned(error).counted(attempts, retry)),
            Self::Failed(failure) => Self::Failed(failure.counted(attempts, retry)),
            ended => ended,
        })
    }
}

impl<S: Store> Pipeline<S> {
    /// Does [`Ended::conclude`] with the handler's retry policy, and reports a lost connection.
    ///
    /// With an order, a delay that the handler asks for is at most the longest one of the policy. Until the delay
    /// elapses, later messages of the ordering key are not stored, and the broker may delete those that it has not
    /// delivered.
    pub(crate) fn conclude(&self, route: &Route<S>, mut ran: Ended, attempts: u32, rounds: u32) -> Option<Ended> {
        let retry = &route.retry;
        match &mut ran {
            Ended::Broke(fault) => self.outage.report(fault),
            Ended::Failed(failure) if self.settings.order != DeliveryOrder::None => {
                failure.next = failure.next.map(|delay| delay.min(retry.longest()));
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
    use crate::runtime::Wait;
    use crate::store::StoreError;
    use crate::{Outcome, Reason};

    /// Formats the conclusion of a run, for comparison.
    fn concluded(ran: Ended, attempts: u32, rounds: u32) -> String {
        let retry = RetryPolicy::new().max_attempts(3);
        match ran.conclude(attempts, rounds, &retry) {
            None => "retry".to_owned(),
            Some(Ended::Done(outcome)) => outcome.as_str().to_owned(),
            Some(Ended::Failed(Failure { attempts, next: Ok(_), .. })) => format!("scheduled after {attempts}"),
            Some(Ended::Failed(Failure { attempts, next: Err(reason), .. })) => {
                format!("dead after {attempts}: {reason:?}")
            }
            Some(Ended::Again(_)) => "not decided".to_owned(),
            Some(Ended::Park(Wait::Claim)) => "busy".to_owned(),
            Some(Ended::Park(_)) => "put off".to_owned(),
            Some(Ended::Broke(_)) => "broke".to_owned(),
            Some(Ended::Lost) => "lost".to_owned(),
            Some(Ended::Stopped) => "stopped".to_owned(),
        }
    }

    fn failed(given_up: Option<Reason>) -> Ended {
        Ended::Failed(Failure::new(given_up.map_or(Ok(Duration::ZERO), Err), "failed"))
    }

    #[test]
    fn an_advised_delay_is_the_least_delay_and_costs_an_attempt() {
        let retry = RetryPolicy::new().max_attempts(2).min_delay(Duration::from_secs(60)).factor(1.0);
        let next = |attempts, not_before| {
            let ran = Ended::Failed(Failure::new(Ok(not_before), "failed"));
            match ran.conclude(attempts, 0, &retry) {
                Some(Ended::Failed(failure)) => failure.next,
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
        let lost_race = || Ended::Again("serialization failure".into());
        let table = [
            (Ended::Done(Outcome::Processed), 0, 0, "processed"),
            (failed(None), 0, 0, "scheduled after 1"),
            (failed(None), 1, IN_PLACE, "scheduled after 2"),
            (failed(None), 2, 0, "dead after 3: Exhausted"),
            (failed(Some(Reason::Permanent)), 0, 0, "dead after 1: Permanent"),
            (lost_race(), 0, 0, "retry"),
            (lost_race(), 2, IN_PLACE - 1, "retry"),
            (lost_race(), 0, IN_PLACE, "scheduled after 1"),
            (lost_race(), 2, IN_PLACE, "dead after 3: Exhausted"),
            (Ended::Park(Wait::Claim), 2, IN_PLACE, "busy"),
            (Ended::Failed(Failure::committed(Box::default())), 1, 0, "dead after 2: Committed"),
            (Ended::Broke(StoreError::LockTimeout), 2, 0, "broke"),
            (Ended::Park(Wait::Free), 2, 0, "put off"),
            (Ended::Stopped, 2, 0, "stopped"),
        ];
        for (ran, attempts, rounds, expected) in table {
            assert_eq!(concluded(ran, attempts, rounds), expected);
        }
    }
}
