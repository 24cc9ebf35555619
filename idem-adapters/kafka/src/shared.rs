//! The state shared by the consumer's thread and the worker's tasks.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use idem_core::{Delivery, DeliveryOrder};
use rdkafka::consumer::BaseConsumer;
use tokio::sync::Notify;
use tokio::time::{self, timeout_at};

use crate::assigned::Assigned;
use crate::error::Loss;
use crate::member::Member;
use crate::partition::{Receipt, TopicPartition};

/// How long a client that joins may be without a broker.
const SEEMINGLY: Duration = Duration::from_secs(3);

/// The assigned partitions, and the state of the subscription.
#[derive(Debug)]
pub(crate) struct Shared {
    inner: Mutex<Inner>,
    /// Notifies the source that a delivery can be taken, or never will be.
    changed: Notify,
    /// The consumer's thread.
    pub(crate) thread: OnceLock<Thread>,
    /// The client, once it is a member, for as long as it exists.
    pub(crate) client: OnceLock<Weak<BaseConsumer<Member>>>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) assigned: Assigned,
    pub(crate) phase: Phase,
    /// There was an assignment, possibly an empty one.
    pub(crate) joined: bool,
    pub(crate) draining: bool,
    pub(crate) closing: bool,
    waits: Waits,
    /// A partition had enough room to receive more of it since the thread last woke.
    has_capacity: bool,
}

/// What the thread waits for while it sleeps, besides records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    Nothing,
    /// Room for more records of a partition, and not for one after another while others are left to hand out.
    Capacity,
    /// The end of all running deliveries; wakes at each one that is settled.
    Quiet,
}

/// The state of the subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Deliveries can be taken.
    Up,
    /// No broker can be reached. The client keeps trying, and is still a member of its group.
    Lost(Loss),
    /// The subscription has ended and must be created again.
    Ended(Loss),
}

impl Shared {
    pub(crate) fn new(window: usize, max_unsettled: usize, order: DeliveryOrder) -> Self {
        let assigned = Assigned::new(window, max_unsettled, order);
        Self {
            inner: Mutex::new(Inner {
                assigned,
                phase: Phase::Up,
                joined: false,
                draining: false,
                closing: false,
                waits: Waits::Nothing,
                has_capacity: false,
            }),
            changed: Notify::new(),
            thread: OnceLock::new(),
            client: OnceLock::new(),
        }
    }

    /// Locks the state. Never held across anything that waits.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next delivery. Cancel safe.
    pub(crate) async fn next(&self) -> Result<(Receipt, Delivery), Loss> {
        loop {
            match &mut *self.lock() {
                Inner { phase: Phase::Lost(loss) | Phase::Ended(loss), .. } => return Err(loss.clone()),
                Inner { draining: true, .. } => {
                    return Err(Loss::Broker(
                        "the source has been drained".to_owned(),
                        "call subscribe to go on".to_owned(),
                    ));
                }
                inner => {
                    if let Some(taken) = inner.assigned.take() {
                        self.check_capacity(inner, taken.0.assignment.epoch);
                        return Ok(taken);
                    }
                }
            }
            self.changed.notified().await;
        }
    }

    /// Notes whether the partition of a delivery that was handed out or settled should receive more now, and wakes the
    /// thread if it waits for that. That is not asked if one should since the thread last woke.
    fn check_capacity(&self, inner: &mut Inner, epoch: u64) {
        if !inner.has_capacity && inner.assigned.wants(epoch) {
            inner.has_capacity = true;
            if inner.waits == Waits::Capacity {
                self.wake();
            }
        }
    }

    /// Waits for the first assignment. A client that has not joined yet may report that all brokers are down when one of
    /// several is: they are lost if it does not join for a while.
    pub(crate) async fn joined(&self) -> Result<(), Loss> {
        let known = self.lock().joined;
        let mut until = None;
        loop {
            {
                let mut inner = self.lock();
                let now = time::Instant::now();
                match &inner.phase {
                    Phase::Ended(loss) => return Err(loss.clone()),
                    Phase::Up if inner.joined => return Ok(()),
                    Phase::Up => {}
                    Phase::Lost(_) if inner.joined && !known => {
                        inner.phase = Phase::Up;
                        return Ok(());
                    }
                    Phase::Lost(loss) if known || now >= *until.get_or_insert(now + SEEMINGLY) => {
                        return Err(loss.clone());
                    }
                    Phase::Lost(_) => {}
                }
            }
            match until {
                Some(until) => drop(timeout_at(until, self.changed.notified()).await),
                None => self.changed.notified().await,
            }
        }
    }

    /// How many more records of the assignments with these epochs may be received.
    pub(crate) fn capacities(&self, epochs: impl Iterator<Item = u64>) -> Vec<usize> {
        let inner = self.lock();
        epochs.map(|epoch| if inner.draining { 0 } else { inner.assigned.capacity(epoch) }).collect()
    }

    /// Changes the state, and lets the source look at it.
    fn change(&self, how: impl FnOnce(&mut Inner)) {
        how(&mut self.lock());
        self.changed.notify_one();
    }

    /// Adds records of the assignment with this epoch, in order.
    pub(crate) fn receive(&self, epoch: u64, records: Vec<(i64, Delivery)>) {
        self.change(|inner| {
            if !inner.draining {
                records.into_iter().for_each(|(offset, delivery)| inner.assigned.receive(epoch, offset, delivery));
            }
        });
    }

    /// Removes partitions that are no longer assigned. Their deliveries are no longer unsettled here, so records of others
    /// may be handed out.
    pub(crate) fn remove(&self, partitions: &[TopicPartition]) {
        self.change(|inner| partitions.iter().for_each(|partition| inner.assigned.remove(partition)));
    }

    pub(crate) fn has_joined(&self) {
        self.change(|inner| inner.joined = true);
    }

    /// Marks the brokers as unreachable. Deliveries that were handed out stay valid until the group revokes their
    /// partitions.
    pub(crate) fn lose(&self, loss: Loss) {
        self.change(|inner| {
            if inner.phase == Phase::Up {
                inner.phase = Phase::Lost(loss);
            }
        });
    }

    /// Whether no broker can be reached.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.lock().phase, Phase::Lost(_))
    }

    /// Marks the brokers as reachable again. Returns `false` if the subscription has ended meanwhile.
    pub(crate) fn revive(&self) -> bool {
        let mut inner = self.lock();
        if let Phase::Lost(_) = inner.phase {
            inner.phase = Phase::Up;
        }
        inner.phase == Phase::Up
    }

    /// Ends the subscription, unless it has already ended.
    pub(crate) fn end(&self, loss: Loss) {
        self.change(|inner| {
            if !matches!(inner.phase, Phase::Ended(_)) {
                inner.assigned.clear();
                inner.phase = Phase::Ended(loss);
            }
        });
    }

    pub(crate) fn ack(&self, receipt: &Receipt) -> bool {
        self.settle(receipt, Assigned::finish)
    }

    /// Handles a delivery that was released or dropped.
    pub(crate) fn leave(&self, receipt: &Receipt) -> bool {
        self.settle(receipt, Assigned::leave_unsettled)
    }

    fn settle(&self, receipt: &Receipt, how: impl FnOnce(&mut Assigned, &Receipt) -> bool) -> bool {
        let mut inner = self.lock();
        let live = how(&mut inner.assigned, receipt);
        self.check_capacity(&mut inner, receipt.assignment.epoch);
        let (waits, is_ready) = (inner.waits, inner.assigned.is_ready());
        drop(inner);
        if waits == Waits::Quiet {
            self.wake();
        }
        // A source that waits for records is notified when they are received.
        if is_ready {
            self.changed.notify_one();
        }
        live
    }

    /// Wakes the thread because it has something to do. If it is awake, its next sleep ends at once.
    pub(crate) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Blocks the thread until it is woken or what it waits for has happened, at most for `longest`.
    pub(crate) fn sleep(&self, longest: Duration, waits: Waits) {
        let mut inner = self.lock();
        inner.waits = waits;
        let happened = waits == Waits::Capacity && inner.has_capacity;
        drop(inner);
        if !happened {
            thread::park_timeout(longest);
        }
        let mut inner = self.lock();
        (inner.waits, inner.has_capacity) = (Waits::Nothing, false);
    }

    /// Blocks the thread until no delivery of these partitions is running, at most for `patience`.
    pub(crate) fn finish(&self, partitions: &[TopicPartition], patience: Duration) {
        let until = Instant::now() + patience;
        let waits = |inner: &Inner| !inner.closing && inner.assigned.busy(partitions);
        // Before it looks, so that nothing is missed.
        self.lock().waits = Waits::Quiet;
        while waits(&self.lock()) && Instant::now() < until {
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
        self.lock().waits = Waits::Nothing;
    }

    /// Hands out no more deliveries. Deliveries that were handed out can still be settled.
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
        self.wake();
    }
}

#[cfg(test)]
mod tests;
