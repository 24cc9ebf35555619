//! What a batch of rows has left to be done.

use std::sync::{Mutex, PoisonError};

use futures_util::future::join_all;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Store;
use crate::batch::Verdict;
use crate::pipeline::Pipeline;
use crate::store::{Isolation, Row};

impl<S: Store> Pipeline<S> {
    /// Concludes each row by its verdict: first what is finished, then the others one after another on the slot of their
    /// batch, and on those that are free. Their leases are extended meanwhile.
    ///
    /// While a suspect waits, or the worker drains, those that have not begun go back instead.
    pub(crate) async fn conclude_all(&self, rows: &[Row], verdicts: Vec<Verdict>, slots: &Semaphore) {
        let (done, rest): (Vec<_>, Vec<_>) =
            rows.iter().zip(verdicts).partition(|(_, verdict)| matches!(verdict, Verdict::Done(_)));
        for (row, verdict) in done {
            self.conclude(row, verdict).await;
        }
        let more = rest.len().saturating_sub(1);
        let rest = Mutex::new(rest.into_iter());
        let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = async |_slot: Option<SemaphorePermit<'_>>| {
            while let Some((row, verdict)) = next() {
                let stops = self.draining.is_cancelled() || self.gate.wanted() >= Isolation::Inbox;
                let verdict = if verdict == Verdict::Alone && stops { Verdict::Stopped } else { verdict };
                self.conclude(row, verdict).await;
            }
        };
        let free = std::iter::from_fn(|| slots.try_acquire().ok()).take(more);
        join_all([None].into_iter().chain(free.map(Some)).map(work)).await;
    }
}
