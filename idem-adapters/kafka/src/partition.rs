//! What identifies a partition, an assignment of it, and a delivery; the state of an assigned partition.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::buffer::Buffer;
use crate::stall::Stall;
use crate::tracker::Tracker;

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
pub(crate) struct Receipt {
    pub(crate) assignment: Arc<Assignment>,
    pub(crate) offset: i64,
    /// Marked as redelivered, and not stored.
    pub(crate) marked: bool,
    /// The ordering key, if an order is kept.
    pub(crate) key: Option<u64>,
    pub(crate) bytes: usize,
}

/// One partition in one assignment, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) assignment: Arc<Assignment>,
    pub(crate) tracker: Tracker,
    pub(crate) buffer: Buffer,
    /// The offset at which the assignment begins, if known.
    pub(crate) begin: Option<i64>,
    /// How many deliveries are handed out and neither settled nor dropped.
    pub(crate) running: usize,
    /// The payload bytes of the running deliveries.
    pub(crate) held: usize,
    /// How many deliveries were handed out and then dropped or released. They are delivered again in the next
    /// assignment.
    pub(crate) left: usize,
    /// How many records were received, which is the number of the next one.
    pub(crate) received: usize,
    /// Records numbered below this are marked. It begins with the window, and grows by one with each marked delivery that
    /// is finished without being stored.
    pub(crate) to_mark: usize,
    /// The end of the finished prefix that was last passed to the client.
    pub(crate) reported: Option<i64>,
    /// The partition is being revoked: running handlers may finish, and none starts.
    pub(crate) leaving: bool,
    pub(crate) stall: Stall,
}

impl Partition {
    /// An assignment that begins at this offset, if it is known.
    pub(crate) fn new(assignment: Assignment, begin: Option<i64>, to_mark: usize) -> Self {
        Self {
            assignment: Arc::new(assignment),
            tracker: Tracker::default(),
            buffer: Buffer::default(),
            begin,
            running: 0,
            held: 0,
            left: 0,
            received: 0,
            to_mark,
            reported: None,
            leaving: false,
            stall: Stall::default(),
        }
    }

    /// The offset after the finished prefix, or that at which the assignment began, if known.
    pub(crate) fn at(&self) -> Option<i64> {
        self.tracker.finished().map(|offset| offset + 1).or(self.begin)
    }

    /// The offset of the next record to receive, if known.
    pub(crate) fn place(&self) -> Option<i64> {
        self.tracker.delivered().map(|offset| offset + 1).or(self.begin)
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.assignment.end();
    }
}
