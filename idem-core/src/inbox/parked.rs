//! Rows that wait in this process, outside the slots: for their codec, or for a database that refuses to record their failure.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::run::Failure;
use crate::runtime::{Ended, Pipeline, Preparing, Wait, refused_wait};
use crate::store::{Row, RowResult, Ticket};
use crate::take_over::Entry;
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
    /// If another message of its handler prepares, or if its codec forgets, the row is given back for a while instead.
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
        self.parked_rows.queue.1.clone().for_each_concurrent(None, |kept| self.keep_row(kept)).await;
    }

    async fn keep_row(&self, (row, work): Kept) {
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
        let due = match self.draining.run_until_cancelled(self.prepare_codec_of(row, turn)).await {
            Some(Err(Ended::Failed(Failure { error, .. }))) => {
                let result = RowResult::Dead { reason: Reason::Undecodable, error: error.clone() };
                match self.record_parked(row, &result, None).await {
                    Ok(()) => return Some(rejected(row, Reason::Undecodable, error)),
                    Err(Ended::Park(_)) => REFUSED,
                    Err(_) => return None,
                }
            }
            Some(Err(Ended::Park(Wait::After(due)))) => due,
            _ => Duration::ZERO,
        };
        let _ = self.record_parked(row, &RowResult::Released { due }, None).await;
        None
    }

    /// Records a failure that the database has refused to record. It is tried again after longer and longer waits. If the
    /// worker drains before, the row is given back, and runs again.
    pub(super) async fn record_later(&self, row: &Row, failure: Failure) -> Option<Outcome> {
        if let Some(left_by) = &failure.left_by {
            return self.store_committed_later(row, &failure, left_by).await;
        }
        self.refund_start(row).await;
        let result = failure.result();
        for tries in 1.. {
            if self.draining.run_until_cancelled(tokio::time::sleep(refused_wait(tries - 1))).await.is_none() {
                break;
            }
            match self.record_parked(row, &result, Some(tries + 1)).await {
                Ok(()) => return Some(failure.logged(row.id)),
                Err(Ended::Park(_)) => {}
                Err(_) => return None,
            }
        }
        let _ = self.record_parked(row, &RowResult::Released { due: Duration::ZERO }, None).await;
        None
    }

    /// Does the same for a row that its handler has committed: it is gone, and cannot be given back. It is tried once more when
    /// the worker drains.
    async fn store_committed_later(&self, row: &Row, failure: &Failure, left_by: &Ticket) -> Option<Outcome> {
        let entry = Entry::failed(row.identity.clone(), &row.delivery, failure);
        let mut tries = 0;
        loop {
            let drains = self.draining.run_until_cancelled(tokio::time::sleep(refused_wait(tries))).await.is_none();
            match self.store_committed(&entry, left_by).await {
                Ended::Done(outcome) => return Some(outcome),
                _ if drains => return None,
                _ => tries += 1,
            }
        }
    }

    /// Records the result of a row that waits here on the inbox's own connection, since these rows have no slot.
    async fn record_parked(&self, row: &Row, result: &RowResult, tries: Option<usize>) -> Result<(), Ended> {
        let write = || async {
            let _own = self.own_statements.lock().await;
            self.store.record_result(row, result).await
        };
        self.insist_for(row, tries, write).await
    }

    async fn prepare_codec_of(&self, row: &Row, turn: Preparing) -> Result<(), Ended> {
        let route = match row.identity.has_key() {
            true => self.routes.get(row.identity.handler),
            // Its handler is looked up again.
            false => self.unprepared(&self.routes.takers_of_row(row), &row.delivery).await,
        };
        match route {
            Some(route) => self.prepare(Ok(turn), route, &row.delivery, Some((row.id, None))).await,
            // The run of the row reports the reason.
            None => Ok(()),
        }
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
