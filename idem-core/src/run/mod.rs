//! Runs messages in transactions: of one delivery, of one inbox row, or of many of either.
//!
//! The failure of one message alone is recorded as its attempt. Of several, those that fail leave the others, which run again
//! without them; they run alone after that.
//!
//! | file | contents |
//! |---|---|
//! | this one | messages that can run, and the division of many into slices that run together |
//! | `transaction` | the run of one; one transaction of any slice: claims or starts, the calls of handlers in time, commit |
//! | `stage` | the messages that a handler has staged, and those of them that are for other handlers |
//! | `end` | ends a transaction, and decides what follows: for one message, and for a slice |
//! | `failure` | what has failed, and what becomes of its message |

mod end;
mod failure;
mod stage;
mod transaction;

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::caught::dropped;
use crate::registry::Job;
use crate::routes::Route;
use crate::runtime::{Ended, Pipeline, Running, Wait};
use crate::store::{Identity, Row, StoreError};
use crate::take_over::Classified;
use crate::{Delivery, Store};

use transaction::Round;

pub(crate) use failure::Failure;
pub(crate) use stage::{Staged, in_claim_order, local};

/// Indices of works in their slice.
type Indices = SmallVec<[usize; 1]>;

/// What works are by their claims or their rows.
type Found = SmallVec<[Classified; 1]>;

/// A message that can run: its handler and its key are known. All that run together are deliveries, or all are rows.
pub(crate) struct Work<'a, S: Store> {
    /// Its index among the deliveries or rows that its caller has collected, in the order of their arrival.
    pub(crate) at: usize,
    pub(crate) delivery: &'a Delivery,
    /// Its row, if it runs from the inbox. It has a claim already; a delivery is claimed by its run.
    pub(crate) row: Option<&'a Row>,
    pub(crate) route: &'a Route<S>,
    pub(crate) identity: Identity,
    /// `None` before it is decoded, and once a transaction has taken it. Its drop is user code, and may panic: so it ends by
    /// [`dropped`], where no orphaned row runs.
    pub(crate) job: Option<Box<dyn Job<S>>>,
    /// For how long a row had been due when it was fetched. `None` for a delivery, and once a run by itself has measured the
    /// rest.
    pub(crate) waited: Option<Duration>,
}

impl<'a, S: Store> Work<'a, S> {
    /// A row that was fetched from the inbox, and is not decoded yet.
    pub(crate) fn of_row(route: &'a Route<S>, row: &'a Row) -> Self {
        let identity = row.identity.clone();
        Self { at: 0, delivery: &row.delivery, row: Some(row), route, identity, job: None, waited: row.waited }
    }

    /// Returns the message.
    fn message(&self) -> (&Identity, &'a Delivery) {
        (&self.identity, self.delivery)
    }
}

impl<S: Store> Pipeline<S> {
    /// Runs works that were collected from so many messages, and are sorted by handler and key. Returns what became of each
    /// message, in the order of their arrival: `Again` for those that have to run alone, as all do that are not among the works,
    /// and one that is the only work. No attempt is recorded for a failure.
    pub(crate) async fn run_together(&self, works: Vec<Work<'_, S>>, number: usize, running: &Running) -> Vec<Ended> {
        let mut all: Vec<Ended> = (0..number).map(|_| Ended::Again(None)).collect();
        if works.len() > 1 {
            // Boxed: it is large, and each slot of the inbox would carry it.
            Box::pin(self.run_slices(works, &mut all, running)).await;
        } else {
            works.into_iter().for_each(|work| dropped("a message", work));
        }
        all
    }

    /// Runs several works in one transaction, and those that are not at fault again in smaller ones if that fails. Writes to `all`
    /// what became of those that do not have to run alone.
    async fn run_slices(&self, works: Vec<Work<'_, S>>, all: &mut [Ended], running: &Running) {
        let _turn = self.throttle.turn().await;
        let rows: Vec<&Row> = works.iter().filter_map(|work| work.row).collect();
        let mut slices = Slices(vec![Slice { works, has_failed: false }]);
        let (mut is_first, mut extended) = (true, Instant::now());
        while let Some(mut slice) = slices.0.pop() {
            // A single work runs alone, where failures are recorded.
            if slice.works.len() < 2 {
                dropped("a message", slice.works.pop());
                continue;
            }
            let round = self.round(&mut slice.works, is_first, running).await;
            is_first = false;
            // Rows that do not run any more are released at once, and an orphaned row may wait for that.
            let ends =
                matches!(round, Ok(Round { ended: Ended::Done(_) | Ended::Stopped | Ended::Park(Wait::Free), .. }));
            if !ends && extended.elapsed() >= self.settings.lease / 4 {
                // The task that extends leases at a third of their duration skips locked rows, and may have met one of
                // our rounds each time.
                self.extend_rows(&rows).await;
                extended = Instant::now();
            }
            self.divide(slice, round, &mut slices, all);
        }
    }

    /// Runs a slice once, unless it may not begin now. An orphaned row keeps out those behind the first.
    async fn round(&self, works: &mut [Work<'_, S>], is_first: bool, running: &Running) -> Result<Round, StoreError> {
        if self.draining.is_cancelled() {
            return Ok(Ended::Stopped.into());
        }
        // Whether an orphaned row waits, or runs, that needs this work to end.
        let keeps_out = match works[0].row {
            Some(_) => self.isolation_lock.keeps_out_rows(),
            None => self.isolation_lock.keeps_out_direct(),
        };
        if running.user_code().is_none() || (!is_first && keeps_out) {
            return Ok(Ended::Park(Wait::Free).into());
        }
        match self.unready(works, running) {
            Some(round) => Ok(round),
            None => self.transaction(works, running).await,
        }
    }

    /// Writes to `all` what became of the works of a slice, unless they run again: without those at fault, or in two halves.
    fn divide<'a>(
        &self,
        slice: Slice<'a, S>,
        round: Result<Round, StoreError>,
        slices: &mut Slices<'a, S>,
        all: &mut [Ended],
    ) {
        let works = &slice.works;
        match round {
            Ok(Round { ended: Ended::Done(_), found, .. }) => {
                self.throttle.grow();
                for (work, found) in works.iter().zip(found) {
                    all[work.at] = found.ended(&work.route.meters);
                }
            }
            Ok(round) => match self.blame(round) {
                Ok(out) => return slices.without(slice, &out),
                Err(ended) => works.iter().for_each(|work| all[work.at] = ended.of_another()),
            },
            Err(fault @ (StoreError::LockTimeout | StoreError::Message(_) | StoreError::Serialization(_))) => {
                if let StoreError::Serialization(_) = fault {
                    self.throttle.shrink();
                }
                return slices.halve(slice);
            }
            // Without an answer, one of them may be the message that takes too long, so each runs alone.
            Err(fault) => {
                self.outage.report(&fault);
                if let StoreError::Unavailable(_) = fault {
                    works.iter().for_each(|work| all[work.at] = Ended::Park(Wait::Free));
                }
            }
        }
        slice.works.into_iter().for_each(|work| dropped("a message", work));
    }
}

/// Works that run in one transaction.
struct Slice<'a, S: Store> {
    works: Vec<Work<'a, S>>,
    /// Whether one of them has failed before.
    has_failed: bool,
}

/// The slices that are still to run.
struct Slices<'a, S: Store>(Vec<Slice<'a, S>>);

impl<'a, S: Store> Slices<'a, S> {
    /// Lets a slice run again without the works at fault, or halved if those are not known.
    fn without(&mut self, mut slice: Slice<'a, S>, out: &[usize]) {
        if out.is_empty() {
            return self.halve(slice);
        }
        // The messages at fault run alone.
        out.iter().for_each(|index| dropped("a message", slice.works[*index].job.take()));
        let mut indices = 0..;
        slice.works.retain(|_| indices.next().is_none_or(|index| !out.contains(&index)));
        // After a second failure the rest is halved, so that many failures do not cost one round each.
        if std::mem::replace(&mut slice.has_failed, true) { self.halve(slice) } else { self.0.push(slice) }
    }

    fn halve(&mut self, mut slice: Slice<'a, S>) {
        let works = slice.works.split_off(slice.works.len() / 2);
        self.0.extend([Slice { works, has_failed: slice.has_failed }, slice]);
    }
}
