//! The partitions that are ours, and the deliveries that come from them. It knows no client.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use idem_core::Delivery;

use crate::buffer::Buffer;
use crate::partition::TopicPartition;
use crate::ticket::Ticket;
use crate::tracker::Tracker;

/// How much may be buffered over all partitions, in bytes of payload, and as much again may be with the worker. The record
/// that reaches it is buffered still. Each partition has an equal share, so that one that stands still leaves the others
/// theirs.
const ROOM: usize = 32 << 20;

/// How many deliveries may be buffered over all partitions, in equal shares.
const BUFFERED: usize = 2048;

/// The partitions that are assigned to this member.
#[derive(Debug)]
pub(crate) struct Assigned {
    window: usize,
    max_unsettled: usize,
    partitions: BTreeMap<TopicPartition, Partition>,
    /// The partition that had its turn last.
    turn: Option<TopicPartition>,
    unsettled: usize,
    /// Bytes of payload that are with the worker.
    held: usize,
    epoch: u64,
}

/// Why a partition stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No broker leads it. The client goes on by itself once one does.
    NoLeader,
    /// The records at the group's offset cannot be read. It takes a person, and a new assignment, to go on.
    Stuck,
}

#[derive(Debug)]
struct Partition {
    epoch: u64,
    tracker: Tracker,
    buffer: Buffer,
    /// Where the assignment begins, if that is known.
    begin: Option<i64>,
    /// Handed out and with somebody.
    running: usize,
    /// Bytes of payload that are with somebody.
    held: usize,
    /// Handed out and dropped, or released. They come again in the next assignment.
    left: usize,
    /// How many deliveries are still to be stored before their first run.
    to_store: usize,
    /// How far its finished prefix was told to the client.
    told: Option<i64>,
    /// It is being revoked: what runs may end, and nothing begins.
    leaving: bool,
    /// It stands still.
    still: Option<Cause>,
}

impl Assigned {
    pub(crate) fn new(window: usize, max_unsettled: usize) -> Self {
        Self { window, max_unsettled, partitions: BTreeMap::new(), turn: None, unsettled: 0, held: 0, epoch: 0 }
    }

    /// A partition becomes ours.
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

    /// A record has come. Until a window of deliveries has been stored each one may be what the owner before died of,
    /// and Kafka does not tell.
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

    /// The next delivery, if one more may be unsettled. Partitions take turns.
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

    /// A delivery is finished. `false`: it was no longer ours.
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

    /// A delivery was given back or forgotten: it stays unsettled, and holds back the finished prefix and what is behind it
    /// in its order. `false`: it was no longer ours.
    pub(crate) fn leave_unsettled(&mut self, ticket: &Ticket) -> bool {
        let Some(owned) = self.owned(ticket) else { return false };
        owned.running -= 1;
        owned.held -= ticket.bytes;
        owned.left += 1;
        self.held -= ticket.bytes;
        true
    }

    /// A delivery that had no claim was stored.
    pub(crate) fn stored(&mut self, ticket: &Ticket) {
        if let Some(owned) = self.owned(ticket) {
            owned.to_store = owned.to_store.saturating_sub(1);
        }
    }

    /// Whether a handler may begin.
    pub(crate) fn is_live(&self, ticket: &Ticket) -> bool {
        self.partitions.get(&ticket.partition).is_some_and(|owned| owned.epoch == ticket.epoch && !owned.leaving)
    }

    /// These partitions are being revoked.
    pub(crate) fn leave(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            if let Some(owned) = self.partitions.get_mut(partition) {
                owned.leaving = true;
                owned.buffer.clear();
            }
        }
    }

    /// Whether deliveries of these partitions are still with somebody.
    pub(crate) fn busy(&self, partitions: &[TopicPartition]) -> bool {
        partitions.iter().filter_map(|partition| self.partitions.get(partition)).any(|owned| owned.running > 0)
    }

    /// A partition is no longer ours. Its deliveries are stale from now on.
    pub(crate) fn remove(&mut self, partition: &TopicPartition) {
        if let Some(owned) = self.partitions.remove(partition) {
            self.unsettled -= owned.running + owned.left;
            self.held -= owned.held;
        }
    }

    /// Nothing is ours any more.
    pub(crate) fn clear(&mut self) {
        self.partitions.clear();
        (self.unsettled, self.held) = (0, 0);
    }

    /// Forgets what is buffered. It stays unfinished.
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

    /// Marks a partition as standing still, or as going on. `false`: nothing has changed. A stuck partition remains stuck
    /// until it is assigned again.
    pub(crate) fn stand(&mut self, partition: &TopicPartition, cause: Option<Cause>) -> bool {
        let Some(owned) = self.partitions.get_mut(partition) else { return false };
        if owned.still == cause || owned.still == Some(Cause::Stuck) {
            return false;
        }
        owned.still = cause;
        true
    }

    /// How many partitions stand still, of each topic that has some.
    pub(crate) fn standing(&self) -> BTreeMap<Arc<str>, usize> {
        let mut standing = BTreeMap::new();
        for (partition, _) in self.partitions.iter().filter(|(_, owned)| owned.still.is_some()) {
            *standing.entry(Arc::clone(&partition.topic)).or_default() += 1;
        }
        standing
    }

    /// The partitions that are ours and not about to leave, each with the number of its assignment.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (&TopicPartition, u64)> {
        self.partitions.iter().filter(|(_, owned)| !owned.leaving).map(|(partition, owned)| (partition, owned.epoch))
    }

    /// Whether a partition of this topic is ours.
    pub(crate) fn has(&self, topic: &str) -> bool {
        self.partitions.keys().any(|partition| &*partition.topic == topic)
    }

    /// The finished prefixes that were not yet told: partition and last finished offset.
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

    /// The offset that a partition stands at, if that is known.
    pub(crate) fn place(&self, partition: &TopicPartition) -> Option<i64> {
        let owned = self.partitions.get(partition)?;
        owned.tracker.delivered().map(|offset| offset + 1).or(owned.begin)
    }

    /// Where the group stands in the partitions that are ours and have a leader: behind the finished prefix, or where it
    /// began, if that is known.
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
