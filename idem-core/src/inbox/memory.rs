//! Limits how much of the inbox a worker holds in memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// About how many bytes of rows a worker holds. Beyond that each free slot takes one row: batches are counted in rows,
/// and one row may have `max_payload` bytes.
const BYTES: usize = 16 * 1024 * 1024;
/// The unit of the semaphore.
const UNIT: usize = 1024;

/// The memory for taken rows. Dropping a permit releases its share.
pub(super) struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BYTES / UNIT)))
    }
}

impl Memory {
    /// Returns which of these rows and how many bytes may be taken now. If no memory is left, it is one row, for a slot
    /// that is free: others may hang for long, and a slot with one row holds no more than a worker without batches.
    pub(super) fn limit(&self, rows: usize) -> (usize, usize) {
        match self.0.available_permits() {
            0 => (1, 1),
            left => (rows, left * UNIT),
        }
    }

    /// Reserves memory for this many bytes, or all that is left. Only the task that takes rows calls this, so that no
    /// less is left than when they were taken.
    pub(super) fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT).min(self.0.available_permits());
        self.0.clone().try_acquire_many_owned(u32::try_from(units).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn taken_memory_is_missing_until_its_permit_is_dropped() {
        let memory = Memory::default();
        assert_eq!(memory.limit(100), (100, BYTES));
        let first = memory.reserve(BYTES / 2);
        assert_eq!(memory.limit(100), (100, BYTES / 2));
        // Its last row exceeded the limit.
        let second = memory.reserve(BYTES);
        assert_eq!(memory.limit(100), (1, 1), "nothing is left");
        let third = memory.reserve(UNIT);
        drop(first);
        assert_eq!(memory.limit(100), (100, BYTES / 2));
        drop((second, third));
        assert_eq!(memory.limit(100), (100, BYTES));
    }
}
