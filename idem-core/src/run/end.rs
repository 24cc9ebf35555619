//! Ends transactions: by COMMIT, or by ROLLBACK. Finds out how one has ended that was cut off: by the handler timeout, by a lost
//! connection, or by the end of the worker. Decides what follows: for a message that ran alone, and for a slice of several.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::caught::dropped;
use crate::routes::Route;
use crate::runtime::{Ended, Pipeline, Wait, growing_waits};
use crate::store::{CommitResult, ErrorClass, StoreError, TxnHandle, TxnOutcome, UNBEGUN};
use crate::{BoxError, DeliveryOrder, Reason, RetryPolicy, Store};

use super::stage::{Staged, in_claim_order};
use super::transaction::Round;
use super::{Failure, Indices};

/// How long a draining worker waits for a transaction that was cut off and still runs.
const GRACE: Duration = Duration::from_secs(2);

/// The maximum delay between two queries for a transaction that still runs.
const LONGEST: Duration = Duration::from_millis(500);

/// How often a transaction that lost against a concurrent one is retried before that counts as a failure.
const IN_PLACE: u32 = 5;

impl Ended {
    /// Decides what follows from the run of a message that has failed `attempts` times before, and lost `rounds` races
    /// since: a failure says what becomes of its message. Returns `None` if it runs again at once, in a new transaction.
    fn conclude(self, attempts: u32, rounds: u32, retry: &RetryPolicy) -> Option<Self> {
        Some(match self {
            Self::Again(Some(error)) if rounds < IN_PLACE => {
                // The text of the error is user code, and may panic, as its drop may.
                let Failure { error, .. } = Failure::returned(error);
                tracing::debug!(error, "lost against a concurrent transaction; tried again");
                return None;
            }
            Self::Again(Some(error)) => Self::Failed(Failure::returned(error).counted(attempts, retry)),
            Self::Failed(failure) => Self::Failed(failure.counted(attempts, retry)),
            ended => ended,
        })
    }
}

impl<S: Store> Pipeline<S> {
    /// Guard and commit, with the messages that the handlers have staged. The guard is part of the store's commit: it
    /// checks that the transaction is still the one that idem began.
    pub(super) async fn commit(&self, mut txn: S::Txn, staged: Staged) -> Ended {
        let (publishes, hands_over) = (!staged.outgoing.is_empty(), !staged.local.is_empty());
        // Without an outbox, nothing was staged.
        if let Some(outbox) = self.outbox.filter(|_| publishes || hands_over) {
            self.store.stage(&mut txn, outbox, staged.outgoing, in_claim_order(staged.local));
        }
        match self.store.commit(txn).await {
            CommitResult::NotSent(fault, txn_handle) => {
                self.cut_off(txn_handle.map(|txn_handle| *txn_handle), Ended::Broke(fault)).await
            }
            committed => {
                // Also without an answer: the messages may be there.
                if publishes {
                    self.store.facts().notifier.notify();
                }
                if hands_over {
                    self.wake_inbox();
                }
                Ended::of(committed)
            }
        }
    }

    /// Rolls back the transaction of a handler that has returned this error, or, without one, of a handler that is not called now,
    /// since an orphaned row runs or waits.
    pub(super) async fn undo(&self, mut txn: S::Txn, error: Option<BoxError>) -> Ended {
        let txn_handle = self.store.txn_handle(&txn);
        let rolled_back = match error {
            None => Ended::Park(Wait::Free),
            Some(error) => {
                let class = self.store.classify_error(Some(&mut txn), error.as_ref());
                if class != ErrorClass::Ordinary {
                    Ended::Again(Some(error))
                } else {
                    Ended::Failed(Failure::returned(error))
                }
            }
        };
        match self.store.rollback(txn).await {
            Ok(txn_outcome) => ended(txn_outcome, txn_handle.unwrap_or_default(), rolled_back),
            // Only our own statements detect an outage, whatever the handler returned.
            Err(fault) => {
                self.outage.report(&fault);
                let is_parked = matches!(rolled_back, Ended::Park(_));
                self.cut_off(txn_handle, if is_parked { rolled_back } else { Ended::Broke(fault) }).await
            }
        }
    }

    /// Ends the transaction of a handler that was dropped before it had returned, because it exceeded this timeout or the worker
    /// stops. It was dropped at an arbitrary point, so the state of the connection is unknown: dropping the transaction closes
    /// it.
    ///
    /// The attempt of a late handler is recorded only if the database responds at once: a database that hangs makes every handler
    /// late.
    pub(super) async fn unreturned(&self, txn: S::Txn, timeout: Duration) -> Ended {
        let txn_handle = self.store.txn_handle(&txn);
        drop(txn);
        if self.stop.is_cancelled() {
            return self.cut_off(txn_handle, Ended::Stopped).await;
        }
        let ran = match tokio::time::timeout(Duration::from_secs(1), self.store.ping()).await {
            Ok(Ok(())) => Ended::Failed(Failure::late(timeout)),
            Ok(Err(fault)) => Ended::Broke(fault),
            Err(_) => {
                let late = "the database did not answer within a second of the handler timeout";
                Ended::Broke(StoreError::ConnectionLost(late.into()))
            }
        };
        self.cut_off(txn_handle, ran).await
    }

    /// Returns the result of a run that ended without our COMMIT or ROLLBACK: `ran`, unless the handler had run COMMIT.
    /// Then its claim stands, and the message would count as processed, as it does if the worker ends before that is known.
    pub(super) async fn cut_off(&self, txn_handle: Option<TxnHandle>, ran: Ended) -> Ended {
        let Some(txn_handle) = txn_handle else { return ran };
        // Boxed: it is seldom needed, and every delivery's future would contain it.
        match Box::pin(self.txn_outcome(&txn_handle)).await {
            Some(txn_outcome) => ended(txn_outcome, txn_handle, ran),
            None => Ended::Stopped,
        }
    }

    /// Polls until the transaction has ended: until then its claim is locked, and no result of the message can be
    /// written. Returns `None` if that is not known after the grace period of a drain, because the transaction still
    /// runs or the database does not answer.
    async fn txn_outcome(&self, txn_handle: &TxnHandle) -> Option<TxnOutcome> {
        let never = CancellationToken::new();
        let ended = async {
            let mut waits = growing_waits(Duration::from_millis(5), LONGEST);
            loop {
                match self.outage.retry_until_answered(&never, || self.store.txn_outcome(txn_handle)).await {
                    Some(TxnOutcome::Running) => tokio::time::sleep(waits.next().unwrap_or(LONGEST)).await,
                    txn_outcome => return txn_outcome,
                }
            }
        };
        let grace = async {
            self.draining.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            txn_outcome = ended => txn_outcome,
            () = grace => None,
        }
    }

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

    /// Finds the messages of a slice that have failed, without recording attempts: they leave the slice, and run alone. If there
    /// are none, it is not known which have failed, and halving finds them.
    ///
    /// # Errors
    /// How the run of the whole slice has ended.
    pub(super) fn blame(&self, round: Round) -> Result<Indices, Ended> {
        let Round { ended, indices, returned, was_open, .. } = round;
        // If a known call is at fault, and it ran one message, it is that message's.
        let blamed = |indices: Indices, is_known| if is_known && indices.len() == 1 { indices } else { Indices::new() };
        Ok(match ended {
            // These messages cannot be in a slice, or not now.
            Ended::Again(None) | Ended::Park(Wait::Codec) => indices,
            Ended::Again(Some(error)) if self.store.classify_error(None, error.as_ref()) == ErrorClass::Deadlock => {
                dropped("the error of a handler", error);
                self.throttle.shrink();
                Indices::new()
            }
            // Any other race, or a time limit at the commit: one message may cause it each time (a deferred trigger, a
            // limit that a handler left behind), which says nothing about other batches. The message is retried when it
            // runs alone.
            Ended::Again(Some(error)) => {
                dropped("the error of a handler", error);
                blamed(indices, !returned)
            }
            // Another transaction holds the claim of a local message, for as long as its handler runs; or it is another batch,
            // which waits for a claim of this one: the claims of local messages come behind those of the batch, and are not
            // sorted with them.
            Ended::Park(Wait::Claim) => Indices::new(),
            Ended::Failed(failure) if failure.next == Err(Reason::RolledBack) => blamed(indices, was_open),
            // The database refuses a COMMIT where a message has a claim, unless somebody has disabled that. All others may run again,
            // and the message that is to blame is found out when it runs alone.
            Ended::Failed(Failure { left_by: Some(_), .. }) => Indices::new(),
            Ended::Failed(_) => blamed(indices, !returned),
            Ended::Broke(fault) => {
                self.outage.report(&fault);
                return Err(Ended::Broke(fault));
            }
            Ended::Done(_) | Ended::Park(_) | Ended::Lost | Ended::Stopped => return Err(ended),
        })
    }
}

/// Returns the result of a run by how its transaction has ended: `ran`, unless the handler itself had ended it.
fn ended(txn_outcome: TxnOutcome, txn_handle: TxnHandle, mut ran: Ended) -> Ended {
    match txn_outcome {
        TxnOutcome::CommittedEarly => Ended::Failed(Failure::committed(Box::new(txn_handle))),
        TxnOutcome::CommitRefused => Ended::Failed(Failure::commit_refused()),
        TxnOutcome::Ended => Ended::of(CommitResult::RolledBack),
        TxnOutcome::Unbegun => {
            if let Ended::Failed(failure) = &mut ran {
                // So its later statements had no transaction.
                failure.error.extend(["; ", UNBEGUN]);
            }
            ran
        }
        // The transaction has ended.
        TxnOutcome::RolledBack | TxnOutcome::Running => ran,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;

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
            Some(Ended::Park(_)) => "parked".to_owned(),
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
                _ => panic!("no attempt is recorded"),
            }
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(next(0, hour), Ok(hour));
        assert!(next(0, Duration::from_secs(1)).unwrap() >= Duration::from_secs(60), "the policy has the longer delay");
        assert_eq!(next(1, hour), Err(Reason::Exhausted));
    }

    #[test]
    fn a_run_has_the_same_conclusion_wherever_it_ran() {
        let lost_race = || Ended::Again(Some("serialization failure".into()));
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
            (Ended::Park(Wait::Free), 2, 0, "parked"),
            (Ended::Stopped, 2, 0, "stopped"),
        ];
        for (ran, attempts, rounds, expected) in table {
            assert_eq!(concluded(ran, attempts, rounds), expected);
        }
    }
}
