//! Limits how much of the inbox a worker holds in memory.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// About how many bytes of rows a worker takes at once. Beyond that it takes one row at a time: batches are counted in
/// rows, and one row may have `max_payload` bytes.
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
    /// Waits until some memory is left.
    pub(super) async fn some(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().acquire_owned().await.ok()
    }

    /// Returns how many bytes may be taken with this permit; the last row may exceed it.
    pub(super) fn left(&self, permit: &OwnedSemaphorePermit) -> usize {
        (self.0.available_permits() + permit.num_permits()) * UNIT
    }

    /// Grows the permit to this many bytes, or to all that is left.
    pub(super) fn grow(&self, permit: &mut OwnedSemaphorePermit, bytes: usize) {
        let more = bytes.div_ceil(UNIT).saturating_sub(permit.num_permits()).min(self.0.available_permits());
        if let Ok(more) = u32::try_from(more)
            && let Ok(more) = self.0.clone().try_acquire_many_owned(more)
        {
            permit.merge(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn taken_memory_is_missing_until_its_permit_is_dropped() {
        let memory = Memory::default();
        let mut permit = memory.some().await.unwrap();
        assert_eq!(memory.left(&permit), BYTES);
        memory.grow(&mut permit, BYTES / 2);
        let mut second = memory.some().await.unwrap();
        assert_eq!(memory.left(&second), BYTES / 2);
        // Its last row exceeded the limit.
        memory.grow(&mut second, BYTES);
        assert!(memory.0.try_acquire().is_err(), "nothing is left");
        drop((permit, second));
        assert_eq!(memory.left(&memory.some().await.unwrap()), BYTES);
    }
}
