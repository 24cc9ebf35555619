//! Runs rows that were taken together as a batch, and finishes them one by one.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Store;
use crate::run::Work;
use crate::runtime::{Ended, Pipeline, Running, Wait};
use crate::store::Row;

impl<S: Store> Pipeline<S> {
    /// Runs rows that were taken from the inbox, none of them a suspect, in one transaction. In every case each row is
    /// processed, its result is recorded, or its lease expires.
    ///
    /// Rows that have to run alone do so on the slot of this batch, and on free slots of `slots`.
    pub(super) async fn run_rows(&self, rows: &[Row], slots: &Semaphore, running: &Running) {
        if let [row] = rows {
            return self.finish_row(row, Ended::Again(None), running).await;
        }
        let _held = self.leases.hold(rows);
        let admitted = running.user_code().map(|_user_code| self.admit_rows(rows));
        let ended = match admitted {
            Some(mut works) => self.run_together(&mut works, rows.len(), running).await,
            None => rows.iter().map(|_| Ended::Park(Wait::Free)).collect(),
        };
        Box::pin(self.finish_rows(rows, ended, slots, running)).await;
    }

    /// Returns the rows that can run together, in claim order. Those without a key go back through decode and key, each alone.
    fn admit_rows<'a>(&'a self, rows: &'a [Row]) -> Vec<Work<'a, S>> {
        let admit = |(at, row): (usize, &'a Row)| {
            let route = self.routes.get(row.identity.handler).filter(|_| row.identity.has_key())?;
            // A row that has lost its connection may be the one that breaks it, and would break it for all. One without the
            // answer to its call is moved, alone, and so is one of a call that this handler does not make.
            let fits = match &route.external {
                Some(call) => row.answer.is_some() && call.limits.is_of(row),
                None => !row.may_have_called(),
            };
            if row.lost_connections > 0 || !fits {
                return None;
            }
            let mut work = Work { at, ..Work::of_row(route, row) };
            self.decode_again(&mut work).ok()?;
            Some(work)
        };
        let mut works: Vec<Work<'_, S>> = rows.iter().enumerate().filter_map(admit).collect();
        works.sort_by(|one, other| one.identity.place().cmp(&other.identity.place()));
        works
    }

    /// Finishes each row by what became of it: first those that are done, then the others, one at a time on the slot of their
    /// batch and on each free slot. Their leases are extended meanwhile.
    ///
    /// While a suspect waits, or the worker drains, rows that have not begun are given back instead.
    async fn finish_rows(&self, rows: &[Row], ended: Vec<Ended>, slots: &Semaphore, running: &Running) {
        let (done, rest): (Vec<_>, Vec<_>) =
            rows.iter().zip(ended).partition(|(_, ended)| matches!(ended, Ended::Done(_)));
        for (row, ended) in done {
            self.finish_row(row, ended, running).await;
        }
        let more = rest.len().saturating_sub(1);
        let rest = Mutex::new(rest.into_iter());
        let next = || rest.lock().next();
        let work = async |_slot: Option<SemaphorePermit<'_>>| {
            while let Some((row, mut ended)) = next() {
                let stops = self.draining.is_cancelled() || self.suspect_lock.keeps_out_rows();
                if stops && matches!(ended, Ended::Again(_)) {
                    ended = Ended::Park(Wait::Free);
                }
                self.finish_row(row, ended, running).await;
            }
        };
        let free = std::iter::from_fn(|| slots.try_acquire().ok()).take(more);
        // They share a task. Polled in one order each time, those behind a handler that never waits would have no turn: it
        // uses up what tokio allows a task in one. This polls first those that had none.
        let works: FuturesUnordered<_> = [None].into_iter().chain(free.map(Some)).map(work).collect();
        works.collect::<()>().await;
    }
}
