//! Rows that wait in this process, outside the slots: for their codec, or for a database that refuses to record their failure. The
//! memory for them, and for all other rows that were fetched.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::run::Failure;
use crate::runtime::{Ended, Pipeline, Preparing, refused_wait};
use crate::store::{Row, RowResult};
use crate::{Outcome, Reason, Store};

/// The rows that wait, until a task takes them, and the memory for rows. Dropping a permit releases its share.
pub(crate) struct ParkedRows {
    queue: (Sender<Kept>, Receiver<Kept>),
    /// The memory for rows that were fetched.
    fetched: Arc<Semaphore>,
    /// The memory for rows that wait for the record of their failure. Fetched rows use up all of their memory while more are due:
    /// a row whose failure found nothing left there would run again, and rows that wait would leave one row to each slot.
    failed: Arc<Semaphore>,
}

/// A row that waits. It keeps its token and its lease, and its start is refunded.
type Kept = (Row, KeptFor);

/// Why a row waits here, and what ends that.
pub(super) enum KeptFor {
    /// The codec of the row prepares.
    Codec(Preparing),
    /// The failure of the row is recorded. Only the record is repeated, never the run. The permit is the memory of the row.
    Record(Failure, OwnedSemaphorePermit),
}

/// About how many bytes of fetched rows a worker holds. Beyond that each free slot gets one row: batches are counted in rows, and
/// one row may have `max_payload` bytes. Rows whose failure waits have as many.
const BYTES: usize = 16 * 1024 * 1024;
/// How many of them count for a small row that waits: 1,024 such rows may wait for the record of their failure.
const LEAST: usize = 16 * 1024;

impl Default for ParkedRows {
    fn default() -> Self {
        let memory = || Arc::new(Semaphore::new(BYTES));
        Self { queue: async_channel::unbounded(), fetched: memory(), failed: memory() }
    }
}

impl ParkedRows {
    /// Returns which of these rows and how many bytes may be fetched now. If no memory is left, it is one row, for a slot
    /// that is free: others may hang for long, and a slot with one row holds no more than a worker without batches.
    pub(super) fn limit(&self, rows: usize) -> (usize, usize) {
        match self.fetched.available_permits() {
            0 => (1, 1),
            left => (rows, left),
        }
    }

    /// Reserves memory for this many bytes of rows that were fetched, or all that is left.
    pub(super) fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        share(&self.fetched, bytes.min(self.fetched.available_permits()))
    }

    /// Returns the permit to keep the failure of one more row, if there is room for the row.
    pub(super) fn failure_slot(&self, row: &Row) -> Option<OwnedSemaphorePermit> {
        share(&self.failed, row.bytes().clamp(LEAST, BYTES))
    }

    /// Passes a row to the task in which it waits. Once no more rows run, nothing takes it, and its lease expires.
    pub(super) fn park(&self, row: &Row, work: KeptFor) {
        drop(self.queue.0.try_send((row.clone(), work)));
    }

    /// Ends the wait for further rows, since no more rows run.
    pub(super) fn close(&self) {
        self.queue.0.close();
    }
}

fn share(memory: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    memory.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
}

impl<S: Store> Pipeline<S> {
    /// Keeps the rows that wait here, until no more rows run and none is left.
    pub(super) async fn keep_parked_rows(&self) {
        self.parked_rows.queue.1.clone().for_each_concurrent(None, |(row, work)| self.keep_row(row, work)).await;
    }

    /// Keeps one row. Its token stays, so that no process fetches it meanwhile, and its start is refunded, so that the end of
    /// this process costs it nothing.
    async fn keep_row(&self, row: Row, work: KeptFor) {
        let _held = self.leases.hold([&row]);
        let work = pin!(async {
            self.refund_start(&row).await;
            match work {
                KeptFor::Codec(turn) => self.prepare_row(&row, turn).await,
                KeptFor::Record(failure, _slot) => self.record_later(&row, failure).await,
            }
        });
        self.report_row(&row, work).await;
        self.wake_inbox();
    }

    /// Runs the preparation for a row, and releases the row: due at once if it has succeeded.
    pub(super) async fn prepare_row(&self, row: &Row, turn: Preparing) -> Option<Outcome> {
        let prepared = self.draining.run_until_cancelled(async {
            let route = match row.identity.has_key() {
                true => self.routes.get(row.identity.handler),
                // The handler of a row without a key is looked up again.
                false => self.unprepared(&self.routes.routes_for_row(row), &row.delivery).await,
            };
            match route {
                Some(route) => self.prepare(Ok(turn), route, &row.delivery, None).await,
                // The run of the row reports the reason.
                None => Ok(Duration::ZERO),
            }
        });
        match prepared.await.unwrap_or(Ok(Duration::ZERO)) {
            Ok(due) => self.release_row(row, due).await,
            Err(error) => self.record_later(row, Failure::new(Err(Reason::Undecodable), error)).await,
        }
    }

    /// Records a failure of a row that waits here, again and again after longer and longer waits if the database refuses that. If
    /// the worker drains before, the row is released, and runs again, unless its handler has committed it.
    async fn record_later(&self, row: &Row, failure: Failure) -> Option<Outcome> {
        for tries in 1.. {
            let wait = tokio::time::sleep(refused_wait(tries - 1));
            if self.draining.run_until_cancelled(wait).await.is_none() {
                break;
            }
            match self.try_to_record_attempt(row, &failure, Some(tries + 1)).await {
                Err(Ended::Park(_)) => {}
                written => return written.ok(),
            }
        }
        self.release_row(row, Duration::ZERO).await
    }

    /// Releases a row that has waited here.
    async fn release_row(&self, row: &Row, due: Duration) -> Option<Outcome> {
        let _ = self.record_result(row, &RowResult::Released { due }, Some(0)).await;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::store::{HandlerId, Identity};
    use crate::{Delivery, Fingerprint, Key};

    fn row(bytes: usize) -> Row {
        let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
        Row::new(7, identity, String::new(), Delivery::new("orders", vec![0; bytes]), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn failures_that_wait_keep_a_limited_number_of_rows_and_bytes() {
        let (rows, small) = (ParkedRows::default(), row(10));
        let kept: Vec<_> = std::iter::from_fn(|| rows.failure_slot(&small)).collect();
        assert_eq!((kept.len(), rows.limit(100)), (1024, (100, BYTES)), "batches go on beside them");
        drop(kept);
        let large = row(BYTES / 2 + 1);
        let (first, second) = (rows.failure_slot(&large), rows.failure_slot(&large));
        assert!(first.is_some() && second.is_none());
        drop(first);
        assert!(rows.failure_slot(&row(2 * BYTES)).is_some(), "one that is too large for it is kept alone");
    }

    #[test]
    fn fetched_memory_is_missing_until_its_permit_is_dropped() {
        let memory = ParkedRows::default();
        assert_eq!(memory.limit(100), (100, BYTES));
        let first = memory.reserve(BYTES / 2);
        assert_eq!(memory.limit(100), (100, BYTES / 2));
        // Its last row exceeded the limit.
        let second = memory.reserve(BYTES);
        assert_eq!(memory.limit(100), (1, 1), "nothing is left");
        assert!(memory.failure_slot(&row(10)).is_some(), "the failure of a row that runs can be kept");
        let third = memory.reserve(1);
        drop(first);
        assert_eq!(memory.limit(100), (100, BYTES / 2));
        drop((second, third));
        assert_eq!(memory.limit(100), (100, BYTES));
    }
}
