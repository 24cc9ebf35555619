//! The inbox row of one message that has a key: it runs later, or it is dead.

use std::time::Duration;

use crate::execute::Charge;
use crate::runtime::{Hold, Pipeline, Step, UNANSWERED, unanswered};
use crate::store::{Identity, NewRow, Promise};
use crate::{Delivery, Outcome, Reason, Store};

use super::classify::Classified;
use super::settled::settled;

impl<S: Store> Pipeline<S> {
    /// Stores a redelivered message before it runs: a process may have died on it, and only the inbox counts that.
    pub(crate) async fn store_first(&self, delivery: &Delivery, identity: &Identity) -> Step {
        self.record(delivery, identity, 0, Ok(Duration::ZERO), "").await
    }

    /// Stores a message to be run after this time.
    pub(crate) async fn store_for_later(&self, delivery: &Delivery, identity: &Identity, after: Duration) -> Step {
        self.record(delivery, identity, 0, Ok(after), "").await
    }

    /// Schedules a message whose first run has failed, or gives it up. Where that cannot be written now, it alone is tried again,
    /// and never the run: a handler whose last statement still holds the claim would run anew without being charged. A drain
    /// ends that, and the delivery comes again. Where the database refuses it, the delivery leaves its lane, and is stored
    /// before it runs again.
    pub(crate) async fn charge(&self, delivery: &Delivery, identity: &Identity, charge: &Charge) -> Step {
        let mut tries = 0;
        loop {
            match self.record(delivery, identity, charge.attempts, charge.next, &charge.error).await {
                Step::Hold(_) if self.draining.is_cancelled() => return Step::Stopped,
                Step::Refused { error, .. } => return Step::Refused { error, ran: true },
                Step::Hold(Hold::Lost) if tries >= UNANSWERED => {
                    return Step::Refused { error: unanswered(), ran: true };
                }
                Step::Hold(hold) => {
                    self.meters(delivery).held();
                    self.hold(hold, tries).await;
                    tries += 1;
                }
                step => return step,
            }
        }
    }

    /// Gives a message up that is too old. The claim of this transaction says that the message is processed, so that another
    /// one takes it over.
    pub(crate) async fn bury_too_old(&self, txn: S::Txn, delivery: &Delivery, identity: &Identity, why: &str) -> Step {
        if let Err(fault) = self.store.rollback(txn).await {
            return self.outage.hold_for(fault);
        }
        self.record(delivery, identity, 0, Err(Reason::TooOld), why).await
    }

    /// Claim first, then the row, in one transaction.
    async fn record(
        &self,
        delivery: &Delivery,
        identity: &Identity,
        attempts: u32,
        state: Result<Duration, Reason>,
        error: &str,
    ) -> Step {
        let Some(route) = self.routes.get(identity.handler) else { return Step::Stopped };
        let (mut txn, classified) = match self.claim(delivery, identity, Promise::Waiting).await {
            Ok(claimed) => claimed,
            Err(step) => return step,
        };
        let (state, error) = match &classified {
            Classified::New => (state, error),
            // What is dead already keeps its reason.
            Classified::TooOld(why) => state.map_or((state, error), |_| (Err(Reason::TooOld), why.as_str())),
            known => return self.answer(txn, route, known).await,
        };
        let row = NewRow { identity, delivery, attempts, state, error };
        if let Err(fault) = self.store.insert(&mut txn, &row).await {
            return self.abandon(txn, fault).await;
        }
        if let Err(fault) = settled(self.store.commit(txn).await) {
            return self.outage.hold_for(fault);
        }
        Step::Done(match state {
            Ok(due) => {
                self.scheduled.notify_one();
                Outcome::Scheduled { attempt: attempts, due }
            }
            Err(reason) => Outcome::Dead { reason },
        })
    }
}
