//! What identifies a partition, an assignment of it, and a delivery.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One partition of one topic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicPartition {
    pub(crate) topic: Arc<str>,
    pub(crate) number: i32,
}

impl TopicPartition {
    pub(crate) fn new(topic: &Arc<str>, number: i32) -> Self {
        Self { topic: Arc::clone(topic), number }
    }
}

/// For example `orders/0`.
impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.number)
    }
}

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

/// Identifies one delivery of one assignment of its partition.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    pub(crate) assignment: Arc<Assignment>,
    pub(crate) offset: i64,
    /// Marked as redelivered, and not stored.
    pub(crate) marked: bool,
    /// The ordering key, if an order is kept.
    pub(crate) key: Option<u64>,
    pub(crate) bytes: usize,
}
