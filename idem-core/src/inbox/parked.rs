//! Rows that wait in this process, outside the slots: for their codec, or for a database that refuses to record their failure.

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

use super::result::{REFUSED, rejected};

/// The rows that wait, until a task takes them.
pub(crate) struct ParkedRows {
    queue: (Sender<Kept>, Receiver<Kept>),
    room: Arc<Semaphore>,
}

/// A row that waits. It keeps its token and its lease, and its start is refunded.
type Kept = (Row, KeptFor);

/// Why a row waits here, and what ends that.
pub(super) enum KeptFor {
    /// Its codec prepares.
    Codec(Preparing),
    /// Its failure is recorded. Only that is repeated, never the run. The permit limits the memory of such rows.
    Record(Failure, OwnedSemaphorePermit),
}

/// How many bytes of rows may wait for the record of their failure, and how many count for a small row: that is 1,024 rows.
const BYTES: usize = 16 * 1024 * 1024;
const LEAST: usize = 16 * 1024;

impl Default for ParkedRows {
    fn default() -> Self {
        Self { queue: async_channel::unbounded(), room: Arc::new(Semaphore::new(BYTES)) }
    }
}

impl ParkedRows {
    /// Returns the permit to keep the failure of one more row, if there is room for the row.
    pub(super) fn room(&self, row: &Row) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(row.bytes().clamp(LEAST, BYTES)).ok()?;
        self.room.clone().try_acquire_many_owned(bytes).ok()
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

impl<S: Store> Pipeline<S> {
    /// Leaves a row that cannot be decoded yet to its codec's preparation, which runs outside the slots: a registry
    /// that hangs must not delay other rows. The row keeps its token, so that no process takes it meanwhile, and its
    /// start is refunded, so that the end of this process charges it with nothing.
    ///
    /// If another message of its handler prepares, or has failed to, the row is given back for a while instead.
    pub(super) async fn leave_to_prepare_row(&self, row: &Row) -> Option<Outcome> {
        let turn = match self.turn_to_prepare(row) {
            Ok(turn) => turn,
            Err(due) => return self.snooze(row, due).await,
        };
        self.refund_start(row).await;
        self.parked_rows.park(row, KeptFor::Codec(turn));
        None
    }

    /// Keeps the rows that wait here, until no more rows run and none is left.
    pub(super) async fn keep_parked_rows(&self) {
        self.parked_rows.queue.1.clone().for_each_concurrent(None, |(row, work)| self.keep_row(row, work)).await;
    }

    async fn keep_row(&self, row: Row, work: KeptFor) {
        let _held = self.leases.hold([&row]);
        let work = pin!(async {
            match work {
                KeptFor::Codec(turn) => self.prepare_row(&row, turn).await,
                KeptFor::Record(failure, _room) => self.record_later(&row, failure).await,
            }
        });
        self.report_row(&row, work).await;
        self.wake_inbox();
    }

    /// Runs the preparation for a row, and gives the row back: due at once if it has succeeded.
    async fn prepare_row(&self, row: &Row, turn: Preparing) -> Option<Outcome> {
        let prepared = self.draining.run_until_cancelled(async {
            let route = match row.identity.has_key() {
                true => self.routes.get(row.identity.handler),
                // Its handler is looked up again.
                false => self.unprepared(&self.routes.takers_of_row(row), &row.delivery).await,
            };
            match route {
                Some(route) => self.prepare(Ok(turn), route, &row.delivery, None).await,
                // The run of the row reports the reason.
                None => Ok(Duration::ZERO),
            }
        });
        let due = match prepared.await.unwrap_or(Ok(Duration::ZERO)) {
            Ok(due) => due,
            Err(error) => {
                let result = RowResult::Dead { reason: Reason::Undecodable, error: error.clone() };
                match self.try_to_record(row, &result, Some(0)).await {
                    Ok(()) => return Some(rejected(row, Reason::Undecodable, error)),
                    Err(Ended::Park(_)) => REFUSED,
                    Err(_) => return None,
                }
            }
        };
        let _ = self.try_to_record(row, &RowResult::Released { due }, Some(0)).await;
        None
    }

    /// Records a failure that the database has refused to record. It is tried again after longer and longer waits. If the
    /// worker drains before, the row is given back, and runs again. One that its handler has committed is gone, and cannot be given
    /// back: it is tried once more then.
    pub(super) async fn record_later(&self, row: &Row, failure: Failure) -> Option<Outcome> {
        let is_gone = failure.left_by.is_some();
        if !is_gone {
            self.refund_start(row).await;
        }
        for tries in 1.. {
            let wait = tokio::time::sleep(refused_wait(tries - 1));
            let drains = self.draining.run_until_cancelled(wait).await.is_none();
            if drains && !is_gone {
                break;
            }
            match self.try_to_charge(row, &failure, Some(tries + 1)).await {
                Err(Ended::Park(_)) if !drains => {}
                written => return written.ok(),
            }
        }
        let _ = self.try_to_record(row, &RowResult::Released { due: Duration::ZERO }, Some(0)).await;
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
        let kept: Vec<_> = std::iter::from_fn(|| rows.room(&small)).collect();
        assert_eq!(kept.len(), 1024);
        drop(kept);
        let large = row(BYTES / 2 + 1);
        let (first, second) = (rows.room(&large), rows.room(&large));
        assert!(first.is_some() && second.is_none());
        drop(first);
        assert!(rows.room(&row(2 * BYTES)).is_some(), "one that is too large for it is kept alone");
    }
}
