//! Takes one delivery over for several handlers.

use std::time::Duration;

use crate::registry::{NoJob, Unfit};
use crate::routes::Route;
use crate::runtime::{HoldReason, Pipeline, Progress, Shared};
use crate::store::{HandlerId, NewRow, StoreError};
use crate::{Delivery, Outcome, Store, telemetry};

use super::classify::Classified;
use super::dead::claimless;
use super::entry::{Entry, Taken};
use super::many::Known;

/// A delivery as each of its handlers sees it.
pub(crate) struct Shares {
    /// The messages whose keys are known, in claim order.
    pub(crate) known: Vec<Known>,
    /// The handlers that can never take it, and why.
    pub(crate) unfit: Vec<(HandlerId, Unfit)>,
    /// Whether the codec of a further handler has to prepare first.
    pub(crate) unprepared: bool,
}

/// The rows and claims that a transaction wrote for these shares.
pub(crate) struct Written {
    known: Vec<Taken>,
    /// The rows of the handlers that can never take it.
    unfit: Vec<i64>,
}

impl Written {
    /// Returns whether one of the claims was removed meanwhile. The transaction must not be committed then, and the
    /// delivery starts over.
    pub(crate) fn is_gone(&self) -> bool {
        self.known.iter().any(|taken| taken.classified == Classified::Gone)
    }
}

impl<S: Store> Pipeline<S> {
    /// Decodes a delivery and computes its key for each of these handlers. A message that one of them
    /// cannot take still reaches the others.
    pub(crate) fn share(&self, delivery: &Delivery, routes: &[&Route<S>]) -> Shares {
        let mut shares = Shares { known: Vec::new(), unfit: Vec::new(), unprepared: false };
        for route in routes {
            match self.limit(delivery).map_err(NoJob::from).and_then(|()| self.decode_for(route, delivery)) {
                Ok(work) => shares.known.push(Known { delivery: Box::new(delivery.clone()), identity: work.identity }),
                Err(NoJob::Unfit(unfit)) => shares.unfit.push((route.id, unfit)),
                Err(NoJob::Unprepared | NoJob::Several) => shares.unprepared = true,
            }
        }
        shares.unfit.sort_by_key(|(handler, _)| handler.0);
        shares.known.sort_by(|one, other| one.identity.place().cmp(&other.identity.place()));
        shares
    }

    /// Stores a delivery for all of its handlers, in one transaction: after it, the delivery may be acked, and each row
    /// runs, is retried and becomes a dead letter independently.
    ///
    /// If the codec of one of them has to prepare first, stores it for those whose keys are known, and leaves it to the
    /// preparation. Without its key there is no telling two messages apart, so it must not be stored for that one.
    pub(crate) async fn store_shares(&self, delivery: &Delivery, mut shares: Shares) -> Progress {
        if shares.unprepared {
            // Written with the rest, so that they are counted once.
            shares.unfit.clear();
        }
        // As for any other delivery for which no handler can be called.
        let unfit = shares.unfit.first().map(|(_, unfit)| unfit).filter(|_| shares.known.is_empty());
        if unfit.is_some_and(|unfit| self.brake.holds(unfit)) {
            return Progress::Hold(HoldReason::Again);
        }
        let mut txn = match self.store.begin(self.settings.handler_timeout).await {
            Ok(txn) => txn,
            Err(fault) => return self.outage.hold_for(fault),
        };
        let written = self.write_shares(&mut txn, delivery, &shares).await;
        if written.as_ref().is_ok_and(Written::is_gone) {
            return match self.store.rollback(txn).await {
                Ok(_) => Progress::Hold(HoldReason::Again),
                Err(fault) => self.outage.hold_for(fault),
            };
        }
        let written = match self.commit_written(txn, written).await {
            Ok(written) => written,
            Err(step) => return step,
        };
        unfit.into_iter().for_each(|unfit| self.brake.unfit(unfit));
        let shared = self.shared(delivery, &shares, &written);
        if shares.unprepared { Progress::Unprepared } else { Progress::Shared(shared) }
    }

    /// Writes the claims and rows of these shares.
    pub(crate) async fn write_shares(
        &self,
        txn: &mut S::Txn,
        delivery: &Delivery,
        shares: &Shares,
    ) -> Result<Written, StoreError> {
        let known: Vec<Entry<'_>> = shares.known.iter().map(Known::entry).collect();
        let known = if known.is_empty() { Vec::new() } else { self.insert_claims_and_rows(txn, &known).await? };
        let unfit: Vec<_> =
            shares.unfit.iter().map(|(handler, unfit)| (claimless(*handler, delivery), unfit)).collect();
        let rows = unfit
            .iter()
            .map(|(identity, unfit)| NewRow::new(identity, delivery, Err(unfit.reason)).with_attempts(0, &unfit.error));
        let rows: Vec<_> = rows.collect();
        let unfit = if rows.is_empty() { Vec::new() } else { self.store.insert(txn, &rows).await? };
        Ok(Written { known, unfit })
    }

    /// Reports shares whose transaction has committed, and returns their outcomes.
    pub(crate) fn shared(&self, delivery: &Delivery, shares: &Shares, written: &Written) -> Shared {
        let mut outcomes = Vec::with_capacity(shares.known.len() + shares.unfit.len());
        for (Known { identity, .. }, taken) in shares.known.iter().zip(&written.known) {
            taken.tell(0);
            let stored = Outcome::Scheduled { attempt: 0, due: Duration::ZERO };
            let outcome = match &taken.classified {
                // This delivery itself stored it, before it was left to a preparation.
                Classified::Duplicate(_) if delivery.rare().preparation.tries() > 0 => stored,
                other => other.outcome(self.routes.meters(identity.handler)).unwrap_or(stored),
            };
            outcomes.push((identity.handler, outcome));
        }
        for ((handler, unfit), row) in shares.unfit.iter().zip(&written.unfit) {
            telemetry::tell(Some(*row), 0, Err(unfit.reason), &unfit.error);
            outcomes.push((*handler, Outcome::Dead { reason: unfit.reason }));
        }
        self.wake_inbox();
        let is_new = !written.known.is_empty() && written.known.iter().all(|taken| taken.classified == Classified::New);
        Shared { outcomes, is_new }
    }
}
