//! One transaction of a slice of works: open, call, commit.

use tokio::time::Instant;

use crate::Store;
use crate::runtime::{Ended, Pipeline, Running};
use crate::store::StoreError;
use crate::take_over::{Classified, Taken};
use crate::telemetry::Meters;

use super::calls::calls;
use super::{Indices, Work};

/// How a transaction has ended, before anyone is blamed for it.
pub(super) struct Round {
    pub(super) ended: Ended,
    /// What each of several works is by its claim or its row, if the transaction is committed.
    pub(super) found: Vec<Taken>,
    /// The works of the last call. Of a slice that did not begin, those that it has to leave.
    pub(super) indices: Indices,
    /// Whether all calls had returned.
    pub(super) returned: bool,
    /// Whether the transaction is known to have been open before the last call: if a handler has ended it, then in that call.
    pub(super) was_open: bool,
}

impl From<Ended> for Round {
    fn from(ended: Ended) -> Self {
        Self::at(ended, Indices::new())
    }
}

impl Round {
    /// A transaction that has ended in the call of these works.
    pub(super) fn at(ended: Ended, indices: Indices) -> Self {
        Self { ended, found: Vec::new(), indices, returned: false, was_open: false }
    }
}

impl<S: Store> Pipeline<S> {
    /// Runs these works in one transaction. Unless it is `Done`, or the connection broke, nothing of it is in the
    /// database, except what natural handlers have written before one of them ran COMMIT, and what was written for a single
    /// delivery that is not new.
    ///
    /// # Errors
    /// One of idem's own statements has failed before any handler ran, and nothing is written.
    pub(super) async fn transaction(&self, works: &mut [Work<'_, S>], running: &Running) -> Result<Round, StoreError> {
        let began = Instant::now();
        let opened = self.open(works).await;
        let now = Instant::now();
        let are_rows = works[0].row.is_some();
        if !are_rows {
            meters(works).for_each(|meters| meters.claim.record(now - began));
        }
        let (txn, found) = opened?;
        let mut new = which(&found, |classified| *classified == Classified::New);
        if let [only] = &mut *works {
            if new.is_empty() {
                return Ok(self.not_new(txn, only, &found[0]).await.into());
            }
            let (waited, meters) = (only.waited.take(), &only.route.meters);
            waited.into_iter().for_each(|waited| meters.inbox_wait.record(waited + (now - began)));
        } else {
            // A message that is too old and a conflict need a row, a duplicate of a message in the inbox has to be counted, and a
            // removed claim has to be inserted again: each by itself.
            let odd = which(&found, |classified| match classified {
                Classified::New | Classified::Duplicate(Some(_)) => false,
                Classified::Gone => !are_rows,
                Classified::TooOld(_) | Classified::Duplicate(None) | Classified::Conflict(_) => true,
            });
            if !odd.is_empty() {
                return self.without(txn, odd).await;
            }
        }
        let calls = calls(works, &mut new);
        // A message that is claimed here and does not run would be lost.
        if calls.iter().map(|call| call.indices.len()).sum::<usize>() != new.len() {
            return self.without(txn, new).await;
        }
        let mut round = self.call_all(txn, calls, works, now, running).await;
        if works.len() > 1 {
            round.found = found.into_vec();
        }
        Ok(round)
    }

    /// Rolls back a transaction in which these works cannot be.
    async fn without(&self, txn: S::Txn, indices: Indices) -> Result<Round, StoreError> {
        self.store.rollback(txn).await?;
        Ok(Round::at(Ended::Again(None), indices))
    }

    /// Ends the transaction of a single message that is not new.
    async fn not_new(&self, txn: S::Txn, work: &mut Work<'_, S>, taken: &Taken) -> Ended {
        if work.row.is_none() {
            return self.answer(txn, work.route, (&work.identity, work.delivery), taken).await;
        }
        // Another process has the row now. Our start of it was not a crash, and is refunded.
        if let Err(fault) = self.store.rollback(txn).await {
            self.outage.report(&fault);
        }
        Ended::Lost
    }
}

/// Returns the indices of the works that were found like this.
fn which(found: &[Taken], is_so: impl Fn(&Classified) -> bool) -> Indices {
    found.iter().enumerate().filter(|(_, taken)| is_so(&taken.classified)).map(|(index, _)| index).collect()
}

/// Returns the metrics of each handler of these works, which are sorted by handler.
pub(super) fn meters<'w, S: Store>(works: &'w [Work<'_, S>]) -> impl Iterator<Item = &'w Meters> {
    works.chunk_by(|one, next| one.identity.handler == next.identity.handler).map(|chunk| &chunk[0].route.meters)
}
