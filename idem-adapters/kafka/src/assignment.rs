//! One assignment of a partition, as its deliveries know it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::partition::TopicPartition;

/// One assignment of a partition. Offsets may repeat in the next one; epochs do not.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: u64,
    /// Whether a handler may start. Each delivery asks, so this is not behind the lock of all assignments.
    live: AtomicBool,
}

impl Assignment {
    pub(crate) fn new(partition: TopicPartition, epoch: u64) -> Self {
        Self { partition, epoch, live: AtomicBool::new(true) }
    }

    /// Whether a handler may start: the partition is assigned, and not being revoked.
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Lets no handler start from now on.
    pub(crate) fn end(&self) {
        self.live.store(false, Ordering::Release);
    }
}
