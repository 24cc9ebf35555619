//! What the consumer's thread and the tasks of the worker share.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idem_core::Delivery;
use tokio::sync::Notify;

use crate::assigned::{Assigned, Ticket};
use crate::error::Loss;

/// The partitions that are ours, and how the subscription stands.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// Rung for the source: something can be taken, or will never be.
    changed: Notify,
    /// Rung for the thread: something was settled.
    settled: Condvar,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) assigned: Assigned,
    pub(crate) phase: Phase,
    /// There was an assignment, be it of no partition.
    pub(crate) joined: bool,
    pub(crate) draining: bool,
    pub(crate) closing: bool,
}

/// How the subscription stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It can be taken from.
    Up,
    /// No broker can be reached. The client goes on trying, and is still a member of its group.
    Lost(Loss),
    /// It is over. Only a new one helps.
    Ended(Loss),
}

impl Shared {
    pub(crate) fn new(window: usize, in_flight: usize) -> Self {
        let assigned = Assigned::new(window, in_flight);
        Self {
            inner: Mutex::new(Inner { assigned, phase: Phase::Up, joined: false, draining: false, closing: false }),
            changed: Notify::new(),
            settled: Condvar::new(),
        }
    }

    /// Never held across anything that waits.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next delivery. Cancel safe.
    pub(crate) async fn next(&self) -> Result<(Ticket, Delivery), Loss> {
        loop {
            match &mut *self.lock() {
                Inner { phase: Phase::Lost(loss) | Phase::Ended(loss), .. } => return Err(loss.clone()),
                Inner { draining: true, .. } => {
                    return Err(Loss::Broker("the source has been drained".to_owned(), "open it".to_owned()));
                }
                inner => {
                    if let Some(taken) = inner.assigned.take() {
                        return Ok(taken);
                    }
                }
            }
            self.changed.notified().await;
        }
    }

    /// Waits for the first assignment.
    pub(crate) async fn joined(&self) -> Result<(), Loss> {
        loop {
            match &*self.lock() {
                Inner { phase: Phase::Lost(loss) | Phase::Ended(loss), .. } => return Err(loss.clone()),
                Inner { joined: true, .. } => return Ok(()),
                _ => {}
            }
            self.changed.notified().await;
        }
    }

    pub(crate) fn receive(&self, partition: i32, offset: i64, delivery: Delivery) {
        self.lock().assigned.receive(partition, offset, delivery);
        self.changed.notify_one();
    }

    pub(crate) fn has_joined(&self) {
        self.lock().joined = true;
        self.changed.notify_one();
    }

    /// No broker can be reached. What is handed out stays ours as long as the group says nothing else.
    pub(crate) fn lose(&self, loss: Loss) {
        let mut inner = self.lock();
        if inner.phase == Phase::Up {
            inner.phase = Phase::Lost(loss);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Whether no broker could be reached.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.lock().phase, Phase::Lost(_))
    }

    /// The brokers are back. `false`: it was over meanwhile.
    pub(crate) fn revive(&self) -> bool {
        let mut inner = self.lock();
        if let Phase::Lost(_) = inner.phase {
            inner.phase = Phase::Up;
        }
        inner.phase == Phase::Up
    }

    /// It is over, unless it was already.
    pub(crate) fn end(&self, loss: Loss) {
        let mut inner = self.lock();
        if !matches!(inner.phase, Phase::Ended(_)) {
            inner.assigned.clear();
            inner.phase = Phase::Ended(loss);
        }
        drop(inner);
        self.changed.notify_one();
    }

    pub(crate) fn ack(&self, ticket: Ticket) -> bool {
        let live = self.lock().assigned.finish(ticket);
        self.has_settled();
        live
    }

    /// A delivery is given back or dropped.
    pub(crate) fn leave(&self, ticket: Ticket) -> bool {
        let live = self.lock().assigned.leave_unsettled(ticket);
        self.has_settled();
        live
    }

    fn has_settled(&self) {
        self.settled.notify_all();
        self.changed.notify_one();
    }

    /// Blocks until nothing of these partitions is with anybody, or the patience is over.
    pub(crate) fn settle(&self, partitions: &[i32], patience: Duration) {
        let until = Instant::now() + patience;
        let mut inner = self.lock();
        while !inner.closing && inner.assigned.busy(partitions) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inner = self.settled.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends what is handed out anew; what was can still be settled.
    pub(crate) fn drain(&self) {
        let mut inner = self.lock();
        inner.draining = true;
        inner.assigned.discard();
    }

    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.draining = true;
        inner.closing = true;
        drop(inner);
        self.settled.notify_all();
    }
}
