//! The partitions assigned to this member, and their deliveries. Independent of the client.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use idem_core::Delivery;

use crate::buffer::Buffer;
use crate::partition::TopicPartition;
use crate::ticket::Ticket;
use crate::tracker::Tracker;

/// The limit on the payload bytes buffered over all partitions. The same limit applies to payload bytes handed out to
/// the worker. The record that reaches the limit is still buffered. Partitions have equal shares, so that a stalled one
/// does not use up the room of the others.
const ROOM: usize = 32 << 20;

/// The limit on the deliveries buffered over all partitions, in equal shares.
const BUFFERED: usize = 2048;

/// The partitions that are assigned to this member.
#[derive(Debug)]
pub(crate) struct Assigned {
    window: usize,
    max_unsettled: usize,
    partitions: BTreeMap<TopicPartition, Partition>,
    /// The partition that last had its turn.
    turn: Option<TopicPartition>,
    unsettled: usize,
    /// Payload bytes handed out to the worker.
    held: usize,
    epoch: u64,
}

/// Why a partition has stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No broker leads it. The client continues by itself once one does.
    NoLeader,
    /// The records at the group's offset cannot be read. The partition continues only after an operator has intervened
    /// and it was assigned again.
    Stuck,
}

#[derive(Debug)]
struct Partition {
    epoch: u64,
    tracker: Tracker,
    buffer: Buffer,
    /// The offset at which the assignment begins, if known.
    begin: Option<i64>,
    /// How many deliveries are handed out and neither settled nor dropped.
    running: usize,
    /// The payload bytes of the running deliveries.
    held: usize,
    /// How many deliveries were handed out and then dropped or released. They are delivered again in the next
    /// assignment.
    left: usize,
    /// How many more deliveries must be stored before their first run.
    to_store: usize,
    /// The end of the finished prefix that was last passed to the client.
    told: Option<i64>,
    /// The partition is being revoked: running handlers may finish, and none starts.
    leaving: bool,
    /// Why the partition has stalled, if it has.
    still: Option<Cause>,
}

impl Assigned {
    pub(crate) fn new(window: usize, max_unsettled: usize) -> Self {
        Self { window, max_unsettled, partitions: BTreeMap::new(), turn: None, unsettled: 0, held: 0, epoch: 0 }
    }

    /// Adds a partition that was assigned to this member.
    pub(crate) fn assign(&mut self, partition: TopicPartition, begin: Option<i64>) {
        self.remove(&partition);
        self.epoch += 1;
        let assigned = Partition {
            epoch: self.epoch,
            tracker: Tracker::default(),
            buffer: Buffer::default(),
            begin,
            running: 0,
            held: 0,
            left: 0,
            to_store: self.window,
            told: None,
            leaving: false,
            still: None,
        };
        self.partitions.insert(partition, assigned);
    }

    /// Adds a received record. Until a window of deliveries has been stored, each may be the one on which the previous
    /// owner crashed, and Kafka does not mark redeliveries.
    pub(crate) fn receive(&mut self, (partition, epoch): (&TopicPartition, u64), offset: i64, delivery: Delivery) {
        let owned = self.partitions.get_mut(partition).filter(|owned| !owned.leaving && owned.epoch == epoch);
        let Some(owned) = owned else { return };
        if owned.tracker.deliver(offset) {
            let delivery = delivery.with_redelivered(owned.to_store > 0);
            let (key, bytes) = (delivery.ordering_key(), delivery.payload().len());
            let ticket = Ticket { partition: partition.clone(), offset, key, bytes, epoch: owned.epoch };
            owned.buffer.push(ticket, delivery);
        }
    }

    /// Returns the next delivery, if one more may be unsettled. Partitions take turns.
    pub(crate) fn take(&mut self) -> Option<(Ticket, Delivery)> {
        if self.unsettled >= self.max_unsettled || self.held >= ROOM {
            return None;
        }
        let (behind, before) = match &self.turn {
            None => ((Unbounded, Unbounded), None),
            Some(turn) => ((Excluded(turn), Unbounded), Some((Unbounded, Included(turn)))),
        };
        let before = before.into_iter().flat_map(|before| self.partitions.range::<TopicPartition, _>(before));
        let mut turns = self.partitions.range::<TopicPartition, _>(behind).chain(before);
        let next = turns.find(|(_, owned)| owned.buffer.is_ready())?.0.clone();
        let owned = self.partitions.get_mut(&next)?;
        self.turn = Some(next);
        let (ticket, delivery) = owned.buffer.pop()?;
        owned.running += 1;
        owned.held += ticket.bytes;
        self.held += ticket.bytes;
        self.unsettled += 1;
        Some((ticket, delivery))
    }

    /// Marks a delivery as finished. Returns `false` if its assignment has ended.
    pub(crate) fn finish(&mut self, ticket: &Ticket) -> bool {
        let Some(owned) = self.owned(ticket) else { return false };
        owned.running -= 1;
        owned.held -= ticket.bytes;
        owned.tracker.finish(ticket.offset);
        ticket.key.into_iter().for_each(|key| owned.buffer.free(key));
        self.unsettled -= 1;
        self.held -= ticket.bytes;
        true
    }

    /// Handles a delivery that was released or dropped: it stays unsettled, and holds back the finished prefix and the
    /// deliveries behind it in its order. Returns `false` if its assignment has ended.
    pub(crate) fn leave_unsettled(&mut self, ticket: &Ticket) -> bool {
        let Some(owned) = self.owned(ticket) else { return false };
        owned.running -= 1;
        owned.held -= ticket.bytes;
        owned.left += 1;
        self.held -= ticket.bytes;
        true
    }

    /// Counts a delivery that had no claim and was stored.
    pub(crate) fn stored(&mut self, ticket: &Ticket) {
        if let Some(owned) = self.owned(ticket) {
            owned.to_store = owned.to_store.saturating_sub(1);
        }
    }

    /// Whether a handler may start.
    pub(crate) fn is_live(&self, ticket: &Ticket) -> bool {
        self.partitions.get(&ticket.partition).is_some_and(|owned| owned.epoch == ticket.epoch && !owned.leaving)
    }

    /// Marks these partitions as being revoked.
    pub(crate) fn leave(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            if let Some(owned) = self.partitions.get_mut(partition) {
                owned.leaving = true;
                owned.buffer.clear();
            }
        }
    }

    /// Whether deliveries of these partitions are still running.
    pub(crate) fn busy(&self, partitions: &[TopicPartition]) -> bool {
        partitions.iter().filter_map(|partition| self.partitions.get(partition)).any(|owned| owned.running > 0)
    }

    /// Removes a partition that is no longer assigned. Its deliveries are stale from now on.
    pub(crate) fn remove(&mut self, partition: &TopicPartition) {
        if let Some(owned) = self.partitions.remove(partition) {
            self.unsettled -= owned.running + owned.left;
            self.held -= owned.held;
        }
    }

    /// Removes all partitions.
    pub(crate) fn clear(&mut self) {
        self.partitions.clear();
        (self.unsettled, self.held) = (0, 0);
    }

    /// Drops the buffered deliveries. They stay unfinished.
    pub(crate) fn discard(&mut self) {
        self.partitions.values_mut().for_each(|owned| owned.buffer.clear());
    }

    /// How many more records of this partition may be received.
    pub(crate) fn room(&self, partition: &TopicPartition) -> usize {
        let receives = |owned: &&Partition| !owned.leaving && owned.still != Some(Cause::Stuck);
        let Some(owned) = self.partitions.get(partition).filter(receives) else { return 0 };
        let sharing = self.partitions.len();
        if owned.buffer.bytes() >= ROOM / sharing {
            return 0;
        }
        let share = (BUFFERED / sharing).max(1).saturating_sub(owned.buffer.len());
        self.window.saturating_sub(owned.tracker.reach()).min(share)
    }

    /// Marks a partition as stalled or as running. Returns `false` if nothing has changed. A stuck partition remains
    /// stuck until it is assigned again.
    pub(crate) fn stand(&mut self, partition: &TopicPartition, cause: Option<Cause>) -> bool {
        let Some(owned) = self.partitions.get_mut(partition) else { return false };
        if owned.still == cause || owned.still == Some(Cause::Stuck) {
            return false;
        }
        owned.still = cause;
        true
    }

    /// The number of stalled partitions of each topic that has any.
    pub(crate) fn standing(&self) -> BTreeMap<Arc<str>, usize> {
        let mut standing = BTreeMap::new();
        for (partition, _) in self.partitions.iter().filter(|(_, owned)| owned.still.is_some()) {
            *standing.entry(Arc::clone(&partition.topic)).or_default() += 1;
        }
        standing
    }

    /// The assigned partitions that are not being revoked, each with the epoch of its assignment.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (&TopicPartition, u64)> {
        self.partitions.iter().filter(|(_, owned)| !owned.leaving).map(|(partition, owned)| (partition, owned.epoch))
    }

    /// Whether a partition of this topic is assigned to this member.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.partitions.keys().any(|partition| &*partition.topic == topic)
    }

    /// The finished prefixes that have grown since the last call: partition and last finished offset.
    pub(crate) fn progress(&mut self) -> Vec<(TopicPartition, i64)> {
        let mut progress = Vec::new();
        for (partition, owned) in &mut self.partitions {
            if let Some(finished) = owned.tracker.finished().filter(|_| owned.told != owned.tracker.finished()) {
                owned.told = Some(finished);
                progress.push((partition.clone(), finished));
            }
        }
        progress
    }

    /// The offset of the next record to receive from a partition, if known.
    pub(crate) fn place(&self, partition: &TopicPartition) -> Option<i64> {
        let owned = self.partitions.get(partition)?;
        owned.tracker.delivered().map(|offset| offset + 1).or(owned.begin)
    }

    /// The group's position in each assigned partition that has a leader: the offset after the finished prefix, or the
    /// offset at which the assignment began, if known.
    pub(crate) fn places(&self) -> BTreeMap<TopicPartition, Option<i64>> {
        let led = self.partitions.iter().filter(|(_, owned)| owned.still != Some(Cause::NoLeader));
        led.map(|(partition, owned)| (partition.clone(), owned.at())).collect()
    }

    fn owned(&mut self, ticket: &Ticket) -> Option<&mut Partition> {
        self.partitions.get_mut(&ticket.partition).filter(|owned| owned.epoch == ticket.epoch)
    }
}

impl Partition {
    fn at(&self) -> Option<i64> {
        self.tracker.finished().map(|offset| offset + 1).or(self.begin)
    }
}

#[cfg(test)]
mod tests;
