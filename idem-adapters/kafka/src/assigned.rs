//! The partitions assigned to this member, and their deliveries. Independent of the client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use idem_core::{Delivery, DeliveryOrder};

use crate::partition::{Assignment, Partition, Receipt, TopicPartition};
use crate::stall::{Cause, Stall};

/// The limit on the payload bytes buffered over all partitions. The record that reaches the limit is still buffered.
/// Partitions have equal shares, so that a stalled one does not use up the room of the others. The same limit applies to
/// payload bytes handed out to the worker, of which a partition can have its part.
const CAPACITY: usize = 32 << 20;

/// The limit on the deliveries buffered over all partitions, in equal shares.
const BUFFERED: usize = 2048;

/// How many times as many deliveries as are still free one partition may have unsettled while others are assigned. So one
/// whose deliveries are not settled leaves room for the others: it gets half, and the next such one half of the rest.
///
/// With an order, a failing delivery stays unsettled until it is processed or dead, and there is room for many times
/// those that run.
const ORDERED: usize = 1;

/// The same without an order. A failing delivery is settled as soon as it is scheduled, and only what the database
/// refuses stays. All others run, so a busy partition has to get nearly everything.
const UNORDERED: usize = 8;

/// The partitions that are assigned to this member.
#[derive(Debug)]
pub(crate) struct Assigned {
    window: usize,
    max_unsettled: usize,
    /// [`ORDERED`] or [`UNORDERED`].
    times: usize,
    /// By the epochs of their assignments, since each delivery looks its partition up, and names take longer to compare.
    partitions: BTreeMap<u64, Partition>,
    epochs: BTreeMap<TopicPartition, u64>,
    /// The epoch of the partition that last had its turn.
    turn: u64,
    unsettled: usize,
    /// Payload bytes handed out to the worker.
    held: usize,
    /// The epoch of the last assignment. The first one is 1.
    epoch: u64,
    /// How often partitions were assigned or revoked.
    changes: u64,
}

impl Assigned {
    pub(crate) fn new(window: usize, max_unsettled: usize, order: DeliveryOrder) -> Self {
        Self {
            window,
            max_unsettled,
            times: if order == DeliveryOrder::None { UNORDERED } else { ORDERED },
            partitions: BTreeMap::new(),
            epochs: BTreeMap::new(),
            turn: 0,
            unsettled: 0,
            held: 0,
            epoch: 0,
            changes: 0,
        }
    }

    /// Adds a partition that was assigned to this member.
    pub(crate) fn assign(&mut self, partition: TopicPartition, begin: Option<i64>) {
        self.remove(&partition);
        self.epoch += 1;
        self.epochs.insert(partition.clone(), self.epoch);
        let assigned = Partition::new(Assignment::new(partition, self.epoch), begin, self.window);
        self.partitions.insert(self.epoch, assigned);
        self.changes += 1;
    }

    /// Adds a received record of the assignment with this epoch. Kafka does not mark redeliveries. The previous owner may
    /// have crashed on any of a window of deliveries, counted from its first unfinished one. Those before that one turn
    /// out to be duplicates and do not count, unless their handlers are natural: without a claim they are stored, and use
    /// up the window.
    pub(crate) fn receive(&mut self, epoch: u64, offset: i64, delivery: Delivery) {
        let Some(owned) = self.partitions.get_mut(&epoch).filter(|owned| !owned.leaving) else { return };
        if owned.tracker.deliver(offset) {
            owned.stall.receive();
            let marked = owned.received < owned.to_mark;
            owned.received += 1;
            let delivery = delivery.with_redelivered(marked);
            let (key, bytes) = (delivery.ordering_key(), delivery.payload().len());
            let receipt = Receipt { assignment: Arc::clone(&owned.assignment), offset, marked, key, bytes };
            owned.buffer.push(receipt, delivery);
        }
    }

    /// Moves the group's position in the assignment with this epoch to where the client is, over markers of transactions
    /// and aborted records. All records before that have been received.
    pub(crate) fn pass(&mut self, epoch: u64, next: i64) {
        let receives = |owned: &&mut Partition| !owned.leaving && owned.stall.receives();
        if let Some(owned) = self.partitions.get_mut(&epoch).filter(receives)
            && owned.at().is_none_or(|at| at < next)
        {
            owned.tracker.pass(next);
        }
    }

    /// Returns the next delivery, if one more may be unsettled. Partitions take turns.
    pub(crate) fn take(&mut self) -> Option<(Receipt, Delivery)> {
        if self.unsettled >= self.max_unsettled || self.held >= CAPACITY {
            return None;
        }
        let mut turns = self.partitions.range(self.turn + 1..).chain(self.partitions.range(..=self.turn));
        let next = *turns.find(|(_, owned)| owned.buffer.is_ready() && self.has_share(owned))?.0;
        let owned = self.partitions.get_mut(&next)?;
        self.turn = next;
        let (receipt, delivery) = owned.buffer.pop()?;
        owned.running += 1;
        owned.held += receipt.bytes;
        self.held += receipt.bytes;
        self.unsettled += 1;
        Some((receipt, delivery))
    }

    /// Whether a partition may have one more delivery unsettled. One that has none always may.
    fn has_share(&self, owned: &Partition) -> bool {
        let unsettled = owned.running + owned.left;
        let (free, capacity) = (self.max_unsettled.saturating_sub(self.unsettled), CAPACITY.saturating_sub(self.held));
        self.partitions.len() == 1 || unsettled == 0 || (unsettled < self.times * free && owned.held < capacity)
    }

    /// The number of unsettled deliveries, if no further one can be handed out although some are ready.
    pub(crate) fn full(&self) -> Option<usize> {
        let mut ready = self.partitions.values().filter(|owned| owned.buffer.is_ready()).peekable();
        ready.peek()?;
        (!ready.any(|owned| self.has_share(owned))).then_some(self.unsettled)
    }

    /// Marks a delivery as finished. Returns `false` if its assignment has ended.
    pub(crate) fn finish(&mut self, receipt: &Receipt) -> bool {
        let Some(owned) = self.settle(receipt) else { return false };
        owned.to_mark += usize::from(receipt.marked);
        owned.tracker.finish(receipt.offset);
        receipt.key.into_iter().for_each(|key| owned.buffer.free(key));
        self.unsettled -= 1;
        true
    }

    /// Handles a delivery that was released or dropped: it stays unsettled, and holds back the finished prefix and the
    /// deliveries behind it in its order. Returns `false` if its assignment has ended.
    pub(crate) fn leave_unsettled(&mut self, receipt: &Receipt) -> bool {
        let Some(owned) = self.settle(receipt) else { return false };
        owned.left += 1;
        true
    }

    /// Whether a record waits to be handed out, whatever may be unsettled.
    pub(crate) fn is_ready(&self) -> bool {
        self.partitions.values().any(|owned| owned.buffer.is_ready())
    }

    /// Marks these partitions as being revoked.
    pub(crate) fn leave(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            if let Some(owned) = self.of(partition) {
                owned.leaving = true;
                owned.assignment.end();
                owned.buffer.clear();
            }
        }
        self.changes += 1;
    }

    /// Whether deliveries of these partitions are still running.
    pub(crate) fn busy(&self, partitions: &[TopicPartition]) -> bool {
        let mut owned = partitions.iter().filter_map(|partition| self.partitions.get(self.epochs.get(partition)?));
        owned.any(|owned| owned.running > 0)
    }

    /// Removes a partition that is no longer assigned. Its deliveries are stale from now on.
    pub(crate) fn remove(&mut self, partition: &TopicPartition) {
        if let Some(owned) = self.epochs.remove(partition).and_then(|epoch| self.partitions.remove(&epoch)) {
            self.unsettled -= owned.running + owned.left;
            self.held -= owned.held;
            self.changes += 1;
        }
    }

    /// Removes all partitions.
    pub(crate) fn clear(&mut self) {
        self.partitions.clear();
        self.epochs.clear();
        (self.unsettled, self.held) = (0, 0);
        self.changes += 1;
    }

    /// Drops the buffered deliveries. They stay unfinished.
    pub(crate) fn discard(&mut self) {
        self.partitions.values_mut().for_each(|owned| owned.buffer.clear());
    }

    /// How many more records of the assignment with this epoch may be received.
    pub(crate) fn capacity(&self, epoch: u64) -> usize {
        let receives = |owned: &&Partition| !owned.leaving && owned.stall.receives();
        let Some(owned) = self.partitions.get(&epoch).filter(receives) else { return 0 };
        let sharing = self.partitions.len();
        if owned.buffer.bytes() >= CAPACITY / sharing {
            return 0;
        }
        let share = self.share().saturating_sub(owned.buffer.len());
        self.window.saturating_sub(owned.tracker.reach()).min(share)
    }

    /// How many records of a partition may be buffered.
    fn share(&self) -> usize {
        (BUFFERED / self.partitions.len().max(1)).max(1)
    }

    /// Whether it is time to receive more of a partition: half of what it may have, since each round of the thread costs
    /// about as much for one record as for many. If it has nothing to hand out, even one record counts, for example
    /// behind a slow delivery.
    pub(crate) fn wants(&self, epoch: u64) -> bool {
        let capacity = self.capacity(epoch);
        let half = self.window.min(self.share()) / 2;
        capacity > 0 && (capacity >= half || !self.partitions.get(&epoch).is_some_and(|owned| owned.buffer.is_ready()))
    }

    /// The assigned partitions that are not being revoked, each with the epoch of its assignment.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (&TopicPartition, u64)> {
        let stays = self.partitions.values().filter(|owned| !owned.leaving);
        stays.map(|owned| (&owned.assignment.partition, owned.assignment.epoch))
    }

    /// A number that changes when [`partitions`](Self::partitions) may.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether a partition of this topic is assigned to this member.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.epochs.keys().any(|partition| &*partition.topic == topic)
    }

    /// The finished prefixes that have grown since the last call: partition and last finished offset.
    pub(crate) fn progress(&mut self) -> Vec<(TopicPartition, i64)> {
        let mut progress = Vec::new();
        for owned in self.partitions.values_mut() {
            if let Some(finished) = owned.tracker.finished().filter(|_| owned.reported != owned.tracker.finished()) {
                owned.reported = Some(finished);
                progress.push((owned.assignment.partition.clone(), finished));
            }
        }
        progress
    }

    /// The group's position in each assigned partition that has a leader: the offset after the finished prefix, or the
    /// offset at which the assignment began, if known.
    pub(crate) fn places(&self) -> BTreeMap<TopicPartition, Option<i64>> {
        let led = self.partitions.values().filter(|owned| owned.stall.cause() != Some(Cause::NoLeader));
        led.map(|owned| (owned.assignment.partition.clone(), owned.at())).collect()
    }

    /// The state of a partition that may have stalled. `None` if it is not assigned to this member.
    pub(crate) fn stall(&mut self, partition: &TopicPartition) -> Option<&mut Stall> {
        self.of(partition).map(|owned| &mut owned.stall)
    }

    /// The stalled partitions that are to be tried again, each with the offset of the next record to receive, if known.
    pub(crate) fn due(&self, now: Instant) -> Vec<(TopicPartition, Option<i64>)> {
        let due = |owned: &Partition| !owned.leaving && owned.stall.is_due(now);
        let due = self.partitions.values().filter(|owned| due(owned));
        due.map(|owned| (owned.assignment.partition.clone(), owned.place())).collect()
    }

    /// The partitions that receive records, each with the offset of the next one, if known.
    pub(crate) fn receiving(&self) -> BTreeMap<TopicPartition, Option<i64>> {
        let receives = |owned: &Partition| !owned.leaving && owned.stall.receives();
        let receiving = self.partitions.values().filter(|owned| receives(owned));
        receiving.map(|owned| (owned.assignment.partition.clone(), owned.place())).collect()
    }

    /// The number of stalled partitions of each topic that has any.
    pub(crate) fn stalled(&self) -> BTreeMap<Arc<str>, usize> {
        let mut stalled = BTreeMap::new();
        for owned in self.partitions.values().filter(|owned| owned.stall.cause().is_some()) {
            *stalled.entry(Arc::clone(&owned.assignment.partition.topic)).or_default() += 1;
        }
        stalled
    }

    /// Notes that a delivery is no longer with the worker. Returns its partition, unless its assignment has ended.
    fn settle(&mut self, receipt: &Receipt) -> Option<&mut Partition> {
        let owned = self.partitions.get_mut(&receipt.assignment.epoch)?;
        owned.running -= 1;
        owned.held -= receipt.bytes;
        self.held -= receipt.bytes;
        Some(owned)
    }

    fn of(&mut self, partition: &TopicPartition) -> Option<&mut Partition> {
        self.partitions.get_mut(self.epochs.get(partition)?)
    }
}

#[cfg(test)]
mod tests;
