//! Rows of the inbox that wait in this process, outside the slots for running rows.

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::execute::Failure;
use crate::store::Row;

use super::preparations::Preparing;

/// The rows that wait, until a task takes them.
pub(crate) struct ParkedRows {
    queue: (Sender<ParkedRow>, Receiver<ParkedRow>),
    room: Arc<Semaphore>,
}

/// A row that waits. It keeps its token and its lease, and its start is refunded.
pub(crate) struct ParkedRow {
    pub(crate) row: Row,
    pub(crate) until: RowUntil,
}

/// What a row waits for.
pub(crate) enum RowUntil {
    /// Its codec.
    Prepared(Preparing),
    /// Its failure is recorded. Only that is repeated, never the run.
    Recorded(Failure, OwnedSemaphorePermit),
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
    pub(crate) fn room(&self, row: &Row) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(row.bytes().clamp(LEAST, BYTES)).ok()?;
        self.room.clone().try_acquire_many_owned(bytes).ok()
    }

    /// Passes a row to the task in which it waits. Once no more rows run, nothing takes it, and its lease expires.
    pub(crate) fn park(&self, row: Row, until: RowUntil) {
        drop(self.queue.0.try_send(ParkedRow { row, until }));
    }

    /// Returns the queue of the rows, which ends once no more rows run, and none is left.
    pub(crate) fn queue(&self) -> Receiver<ParkedRow> {
        self.queue.1.clone()
    }

    /// Ends the wait for further rows, since no more rows run.
    pub(crate) fn close(&self) {
        self.queue.0.close();
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
