//! Ends transactions: by COMMIT, or by ROLLBACK. Finds out how one has ended that was cut off: by the handler timeout, by a lost
//! connection, or by the end of the worker.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::runtime::{Ended, Pipeline, Wait};
use crate::store::{CommitResult, ErrorClass, Fate, StoreError, Ticket};
use crate::{BoxError, Store};

use super::Failure;
use super::local::in_claim_order;
use super::stage::Staged;

/// How long a draining worker waits for a transaction that was cut off and still runs.
const GRACE: Duration = Duration::from_secs(2);

/// The maximum delay between two queries for a transaction that still runs.
const LONGEST: Duration = Duration::from_millis(500);

impl<S: Store> Pipeline<S> {
    /// Guard and commit, with the messages that the handlers have staged. The guard is part of the store's commit: it
    /// checks that the transaction is still the one that idem began.
    pub(super) async fn commit(&self, mut txn: S::Txn, staged: Staged) -> Ended {
        let (publishes, hands_over) = (!staged.outgoing.is_empty(), !staged.local.is_empty());
        // Without an outbox, nothing was staged.
        if let Some(outbox) = self.outbox.as_ref().filter(|_| publishes || hands_over) {
            self.store.stage(&mut txn, outbox.id, staged.outgoing, in_claim_order(staged.local));
        }
        match self.store.commit(txn).await {
            CommitResult::NotSent(fault, ticket) => {
                self.cut_off(ticket.map(|ticket| *ticket), Ended::Broke(fault)).await
            }
            committed => {
                // Also without an answer: the messages may be there.
                if publishes {
                    self.store.facts().bell.ring();
                }
                if hands_over {
                    self.wake_inbox();
                }
                Ended::of(committed)
            }
        }
    }

    /// Rolls back the transaction of a handler that has returned this error, or, without one, of a handler that is not called now,
    /// since a suspect runs or waits.
    pub(super) async fn undo(&self, mut txn: S::Txn, error: Option<BoxError>) -> Ended {
        let ticket = self.store.ticket(&txn);
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
            Ok(fate) => ended(fate, ticket.unwrap_or_default(), rolled_back),
            // Only our own statements detect an outage, whatever the handler returned.
            Err(fault) => match rolled_back {
                Ended::Park(turn) => {
                    self.outage.report(&fault);
                    self.cut_off(ticket, Ended::Park(turn)).await
                }
                _ => self.cut_off(ticket, Ended::Broke(fault)).await,
            },
        }
    }

    /// Ends the transaction of a handler that was dropped before it had returned, because it exceeded this timeout or the worker
    /// stops. It was dropped at an arbitrary point, so the state of the connection is unknown: dropping the transaction closes
    /// it.
    ///
    /// A late handler is charged only if the database responds at once: a database that hangs makes every handler late.
    pub(super) async fn unreturned(&self, txn: S::Txn, timeout: Duration) -> Ended {
        let ticket = self.store.ticket(&txn);
        drop(txn);
        if self.stop.is_cancelled() {
            return self.cut_off(ticket, Ended::Stopped).await;
        }
        let ran = match tokio::time::timeout(Duration::from_secs(1), self.store.ping()).await {
            Ok(Ok(())) => Ended::Failed(Failure::late(timeout)),
            Ok(Err(fault)) => Ended::Broke(fault),
            Err(_) => {
                let late = "the database did not answer within a second of the handler timeout";
                Ended::Broke(StoreError::ConnectionLost(late.into()))
            }
        };
        self.cut_off(ticket, ran).await
    }

    /// Returns the result of a run that ended without our COMMIT or ROLLBACK: `ran`, unless the handler had run COMMIT.
    /// Then its claim stands, and the message would count as processed.
    pub(super) async fn cut_off(&self, ticket: Option<Ticket>, ran: Ended) -> Ended {
        let Some(ticket) = ticket else { return ran };
        // Boxed: it is seldom needed, and every delivery's future would contain it.
        match Box::pin(self.fate(&ticket)).await {
            Some(fate) => ended(fate, ticket, ran),
            None => {
                self.tell_of_unknown_end(&ticket);
                Ended::Stopped
            }
        }
    }

    /// Logs a transaction whose end the draining worker does not learn. It is asked for no more, so from now on only the
    /// log tells that its handler may have run COMMIT. A message without a claim just runs again.
    fn tell_of_unknown_end(&self, ticket: &Ticket) {
        let Some((handler, key)) = &ticket.claim else { return };
        tracing::warn!(
            consumer = self.consumer,
            handler = self.routes.get(*handler).map(|route| route.handler.facts().name),
            %key,
            transaction = ticket.number,
            "a message was cut off, and the worker ends before the database has said how its transaction ended: if the handler had \
             run COMMIT, the message counts as processed; otherwise it runs again"
        );
    }

    /// Polls until the transaction has ended: until then its claim is locked, and no result of the message can be
    /// written. Returns `None` if that is not known after the grace period of a drain, because the transaction still
    /// runs or the database does not answer.
    async fn fate(&self, ticket: &Ticket) -> Option<Fate> {
        let never = CancellationToken::new();
        let ended = async {
            let mut wait = Duration::from_millis(5);
            loop {
                match self.outage.insist(&never, || self.store.fate(ticket)).await {
                    Some(Fate::Running) => {}
                    fate => return fate,
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST);
            }
        };
        let grace = async {
            self.draining.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            fate = ended => fate,
            () = grace => None,
        }
    }
}

/// Returns the result of a run by how its transaction has ended: `ran`, unless the handler itself had ended it.
fn ended(fate: Fate, ticket: Ticket, ran: Ended) -> Ended {
    match fate {
        Fate::CommittedEarly => Ended::Failed(Failure::committed(Box::new(ticket))),
        Fate::CommitRefused => Ended::Failed(Failure::commit_refused()),
        Fate::Ended => Ended::of(CommitResult::RolledBack),
        Fate::Unbegun => ran.unbegun(),
        // It has ended.
        Fate::RolledBack | Fate::Running => ran,
    }
}
