//! Runs rows that were taken together as a batch, and finishes them one by one.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Store;
use crate::batch::Verdict;
use crate::runtime::{Pipeline, Running};
use crate::store::Row;

impl<S: Store> Pipeline<S> {
    /// Runs rows that were taken from the inbox, none of them a suspect, in one transaction. In every case each row is
    /// processed, its result is recorded, or its lease expires.
    ///
    /// Rows that have to run alone do so on the slot of this batch, and on free slots of `slots`.
    pub(super) async fn run_rows(&self, rows: &[Row], slots: &Semaphore, running: &Running) {
        if let [row] = rows {
            return self.finish_row(row, Verdict::Single, running).await;
        }
        let _held = self.leases.hold(rows);
        let verdicts = Box::pin(self.row_verdicts(rows, running)).await;
        Box::pin(self.finish_rows(rows, verdicts, slots, running)).await;
    }

    /// Finishes each row by its verdict: first those that are done, then the others, one at a time on the slot of their
    /// batch and on each free slot. Their leases are extended meanwhile.
    ///
    /// While a suspect waits, or the worker drains, rows that have not begun are given back instead.
    async fn finish_rows(&self, rows: &[Row], verdicts: Vec<Verdict>, slots: &Semaphore, running: &Running) {
        let (done, rest): (Vec<_>, Vec<_>) =
            rows.iter().zip(verdicts).partition(|(_, verdict)| matches!(verdict, Verdict::Done(_)));
        for (row, verdict) in done {
            self.finish_row(row, verdict, running).await;
        }
        let more = rest.len().saturating_sub(1);
        let rest = Mutex::new(rest.into_iter());
        let next = || rest.lock().next();
        let work = async |_slot: Option<SemaphorePermit<'_>>| {
            while let Some((row, verdict)) = next() {
                let stops = self.draining.is_cancelled() || self.suspect_lock.keeps_out_rows();
                let verdict = if verdict == Verdict::Single && stops { Verdict::PutOff } else { verdict };
                self.finish_row(row, verdict, running).await;
            }
        };
        let free = std::iter::from_fn(|| slots.try_acquire().ok()).take(more);
        // They share a task. Polled in one order each time, those behind a handler that never waits would have no turn: it
        // uses up what tokio allows a task in one. This polls first those that had none.
        let works: FuturesUnordered<_> = [None].into_iter().chain(free.map(Some)).map(work).collect();
        works.collect::<()>().await;
    }
}
