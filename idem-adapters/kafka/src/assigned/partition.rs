//! The state of one assigned partition.

use std::sync::Arc;

use crate::buffer::Buffer;
use crate::partition::Assignment;
use crate::stall::Stall;
use crate::tracker::Tracker;

/// One partition in one assignment, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) assignment: Arc<Assignment>,
    pub(super) tracker: Tracker,
    pub(super) buffer: Buffer,
    /// The offset at which the assignment begins, if known.
    pub(super) begin: Option<i64>,
    /// How many deliveries are handed out and neither settled nor dropped.
    pub(super) running: usize,
    /// The payload bytes of the running deliveries.
    pub(super) held: usize,
    /// How many deliveries were handed out and then dropped or released. They are delivered again in the next
    /// assignment.
    pub(super) left: usize,
    /// How many records were received, which is the number of the next one.
    pub(super) received: usize,
    /// Records numbered below this are marked. It begins with the window, and grows by one with each marked delivery that
    /// is finished without being stored.
    pub(super) to_mark: usize,
    /// The end of the finished prefix that was last passed to the client.
    pub(super) told: Option<i64>,
    /// The partition is being revoked: running handlers may finish, and none starts.
    pub(super) leaving: bool,
    pub(super) stall: Stall,
}

impl Partition {
    /// An assignment that begins at this offset, if it is known.
    pub(super) fn new(assignment: Assignment, begin: Option<i64>, to_mark: usize) -> Self {
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
            told: None,
            leaving: false,
            stall: Stall::default(),
        }
    }

    /// The offset after the finished prefix, or that at which the assignment began, if known.
    pub(super) fn at(&self) -> Option<i64> {
        self.tracker.finished().map(|offset| offset + 1).or(self.begin)
    }

    /// The offset of the next record to receive, if known.
    pub(super) fn place(&self) -> Option<i64> {
        self.tracker.delivered().map(|offset| offset + 1).or(self.begin)
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.assignment.end();
    }
}
