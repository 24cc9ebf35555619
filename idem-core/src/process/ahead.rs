//! Stores redelivered messages of an ordered subscription ahead of their turn.

use std::pin::pin;
use std::time::Duration;

use crate::delivery::Refused;
use crate::registry::NoJob;
use crate::runtime::{Held, HoldReason, Pipeline, Progress, extended, hold_wait, warn_of_refusal};
use crate::store::Identity;
use crate::{Acker, Delivery, Outcome, Store};

/// The result of storing a delivery before its turn.
pub(crate) enum Ahead {
    /// The message is in the inbox, or its claim exists: its ordering key waits for the row.
    Row(Outcome, Box<Identity>),
    /// The database has responded, and the message never runs.
    Dead(Outcome),
}

/// The delay after which a row that was stored ahead of its turn runs even if its delivery never comes back because the
/// broker dropped it. It is long, so that the order survives a worker that is down for a weekend.
const DROPPED: Duration = Duration::from_secs(7 * 24 * 3600);

impl<S: Store> Pipeline<S> {
    /// Stores a redelivered, ordered message as soon as it is received: a broker that limits deliveries may drop it
    /// while it waits for its turn. The row becomes due at its turn. Returns `None` if the worker drains or the
    /// delivery is lost.
    pub(super) async fn store_ahead<A: Acker>(&self, delivery: &mut Delivery, acker: &mut A) -> Option<Ahead> {
        let (mut holds, mut refused) = (0, Refused::default());
        while acker.is_live() && !self.draining.is_cancelled() {
            let tried = extended(acker, pin!(self.try_store_ahead(delivery))).await;
            match tried {
                (Progress::Done(Outcome::Scheduled { attempt, .. }), Some(identity)) => {
                    acker.stored();
                    return Some(Ahead::Row(Outcome::Scheduled { attempt, due: Duration::ZERO }, identity));
                }
                (Progress::Done(outcome @ Outcome::Duplicate), Some(identity)) => {
                    return Some(Ahead::Row(outcome, identity));
                }
                (Progress::Done(outcome), _) => return Some(Ahead::Dead(outcome)),
                (Progress::Hold(hold), _) => {
                    self.meters(delivery).held();
                    extended(acker, self.hold(hold, holds)).await;
                    holds += 1;
                }
                (Progress::Refused { error, .. }, _) => {
                    self.meters(delivery).held();
                    warn_of_refusal(delivery, refused.again(|| Held::new(&self.outage)), error.as_ref());
                    extended(acker, self.hold(HoldReason::Refused, holds)).await;
                    holds += 1;
                }
                (Progress::Unprepared, _) => {
                    self.meters(delivery).held();
                    if !self.prepared(delivery, acker).await {
                        return None;
                    }
                }
                (Progress::InRow(..) | Progress::Shared(_) | Progress::Stopped, _) => return None,
            }
        }
        None
    }

    async fn try_store_ahead(&self, delivery: &Delivery) -> (Progress, Option<Box<Identity>>) {
        let work = match self.decode_beside(delivery).await {
            Ok(work) => work,
            Err(NoJob::Unprepared) => return (Progress::Unprepared, None),
            // Refused with an order when the worker starts.
            Err(NoJob::Several) => return (Progress::Stopped, None),
            Err(NoJob::Unfit(unfit)) => {
                let _room = self.single_stores.acquire().await;
                return (self.dead_letter(delivery, unfit).await, None);
            }
        };
        let _key_lock = self.key_locks.enter((work.identity.handler, &work.identity.key)).await;
        let _room = self.single_stores.acquire().await;
        let step = self.store_for_later(delivery, &work.identity, DROPPED).await;
        (step, Some(Box::new(work.identity)))
    }

    /// Makes a row due that this process or an earlier one stored ahead of its turn.
    pub(super) async fn make_due(&self, identity: &Identity) {
        let mut holds = 0;
        while let Err(fault) = self.store.make_due(identity).await {
            drop(self.outage.hold_for(fault));
            self.outage.over().await;
            tokio::time::sleep(hold_wait(holds)).await;
            holds += 1;
        }
        self.scheduled.notify_one();
    }
}
