//! Stores redelivered messages of an ordered subscription ahead of their turn.

use std::pin::pin;
use std::time::Duration;

use crate::delivery::Refused;
use crate::registry::NoJob;
use crate::runtime::{Held, HoldReason, KeyTicket, Pipeline, Progress, extended, is_urgent, warn_of_refusal};
use crate::store::{Identity, StoreError};
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

/// How often a delivery that waits for its turn moves its row that far away again, so that its row can be told from one
/// for which no worker waits.
const RENEWED: Duration = Duration::from_secs(600);

/// When a row that an earlier process has stored is renewed first: not before the messages that came with it are stored.
const SETTLED: Duration = Duration::from_secs(5);

/// The time without a renewal after which no worker waits for a row. Until then it may belong to a worker that still
/// has the order: another release, or another queue.
const LEFT: Duration = Duration::from_secs(3600);

/// No row that has not run is due later than this for another reason.
const SHORTEST: Duration = Duration::from_secs(24 * 3600);

impl<S: Store> Pipeline<S> {
    /// Stores a redelivered, ordered message as soon as it is received: a broker that limits deliveries may drop it
    /// while it waits for its turn. The row becomes due at its turn. Returns `None` if the worker drains or the
    /// delivery is lost.
    pub(super) async fn store_ahead<A: Acker>(&self, delivery: &mut Delivery, acker: &mut A) -> Option<Ahead> {
        let (mut holds, mut refused) = (0, Refused::default());
        while acker.is_live() && !self.draining.has_begun() {
            let tried = extended(acker, pin!(self.try_store_ahead(delivery))).await;
            if let (Progress::Done(outcome), _) = &tried {
                self.answered(outcome);
            }
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
                (Progress::Refused(error), _) => {
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
                (Progress::InRow(..) | Progress::Shared(_) | Progress::Behind | Progress::Stopped, _) => {
                    return None;
                }
            }
        }
        None
    }

    async fn try_store_ahead(&self, delivery: &Delivery) -> (Progress, Option<Box<Identity>>) {
        let work = match self.decode_beside(delivery).await {
            Ok((work, _)) => work,
            Err(NoJob::Unprepared) => return (Progress::Unprepared, None),
            // Refused with an order when the worker starts.
            Err(NoJob::Several) => return (Progress::Stopped, None),
            Err(NoJob::Unfit(unfit)) => {
                let _room = self.single_stores.acquire(is_urgent(delivery)).await;
                return (self.dead_letter(delivery, unfit).await, None);
            }
        };
        let _key_lock = self.key_locks.enter((work.identity.handler, &work.identity.key)).await;
        // Most were stored when they came before. A read finds them without the commit that a claim costs. The others
        // are then stored soon, in case this process also ends early.
        match self.is_stored(&work.identity).await {
            Ok(true) => return (Progress::Done(Outcome::Duplicate), Some(Box::new(work.identity))),
            Ok(false) => {}
            Err(fault) => return (self.outage.hold_for(fault), None),
        }
        let _room = self.single_stores.acquire(is_urgent(delivery)).await;
        let step = self.store_for_later(delivery, &work.identity, DROPPED).await;
        (step, Some(Box::new(work.identity)))
    }

    async fn is_stored(&self, identity: &Identity) -> Result<bool, StoreError> {
        let _look = self.rows.look.lock().await;
        self.store.is_scheduled(identity).await
    }

    /// Waits for the turn of a delivery whose message is stored, and keeps the row from becoming due meanwhile. Returns
    /// `false` if the worker drains or the delivery is lost.
    pub(super) async fn turn_of_row<A: Acker>(
        &self,
        acker: &mut A,
        place: &KeyTicket,
        (outcome, identity): (&Outcome, &Identity),
    ) -> bool {
        let turn = async {
            let mut turn = pin!(place.turn());
            let mut wait = if *outcome == Outcome::Duplicate { SETTLED } else { RENEWED };
            loop {
                tokio::select! {
                    biased;
                    () = &mut turn => return,
                    () = tokio::time::sleep(std::mem::replace(&mut wait, RENEWED)) => {}
                }
                let _look = self.rows.look.lock().await;
                if let Err(fault) = self.store.make_due(identity, DROPPED).await {
                    drop(self.outage.hold_for(fault));
                }
            }
        };
        self.unless_over(acker, turn).await
    }

    /// Makes all rows due that workers with an order stored ahead of their turn, and for which none waits any more. They
    /// run at once: this worker has no order.
    pub(crate) async fn make_all_due(&self) {
        match self.store.make_all_due(&self.routes.ids(), SHORTEST..DROPPED - LEFT).await {
            Ok(0) => {}
            Ok(rows) => {
                tracing::info!(rows, "messages run now that a worker with an order had stored ahead of their turn");
                self.wake_inbox();
            }
            Err(fault) => tracing::debug!(%fault, "what was stored ahead of its turn is looked for later"),
        }
    }
}
