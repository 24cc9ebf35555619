//! The partitions that are ours, and the deliveries that come from them. It knows no client.

use std::collections::{BTreeMap, VecDeque};

use idem_core::Delivery;

use crate::tracker::Tracker;

/// How much may be buffered over all partitions, in bytes of payload. The record that reaches it is buffered still.
const ROOM: usize = 32 << 20;

/// How many deliveries may be buffered over all partitions.
const BUFFERED: usize = 2048;

/// What is ours.
#[derive(Debug)]
pub(crate) struct Assigned {
    window: usize,
    in_flight: usize,
    partitions: BTreeMap<i32, Partition>,
    buffer: VecDeque<(Ticket, Delivery)>,
    bytes: usize,
    unsettled: usize,
    epoch: u64,
}

/// Names one delivery of one assignment of its partition. Offsets come again in the next assignment, epochs do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    epoch: u64,
}

#[derive(Debug)]
struct Partition {
    epoch: u64,
    tracker: Tracker,
    /// Where the assignment begins, if that is known.
    begin: Option<i64>,
    /// Handed out and with somebody.
    running: usize,
    /// Handed out and dropped, or released. They come again in the next assignment.
    left: usize,
    /// How many deliveries are still to be stored before their first run.
    to_store: usize,
    /// How far its finished prefix was told to the client.
    told: Option<i64>,
    /// It is being revoked: what runs may end, and nothing begins.
    leaving: bool,
}

impl Assigned {
    pub(crate) fn new(window: usize, in_flight: usize) -> Self {
        Self {
            window,
            in_flight,
            partitions: BTreeMap::new(),
            buffer: VecDeque::new(),
            bytes: 0,
            unsettled: 0,
            epoch: 0,
        }
    }

    /// A partition becomes ours.
    pub(crate) fn assign(&mut self, partition: i32, begin: Option<i64>) {
        self.remove(partition);
        self.epoch += 1;
        let assigned = Partition {
            epoch: self.epoch,
            tracker: Tracker::default(),
            begin,
            running: 0,
            left: 0,
            to_store: self.window,
            told: None,
            leaving: false,
        };
        self.partitions.insert(partition, assigned);
    }

    /// A record has come. Until a window of deliveries has been stored each one may be what the owner before died of,
    /// and Kafka does not tell.
    pub(crate) fn receive(&mut self, (partition, epoch): (i32, u64), offset: i64, delivery: Delivery) {
        let owned = self.partitions.get_mut(&partition).filter(|owned| !owned.leaving && owned.epoch == epoch);
        let Some(owned) = owned else { return };
        if owned.tracker.deliver(offset) {
            let delivery = delivery.with_redelivered(owned.to_store > 0);
            self.bytes += delivery.payload().len();
            self.buffer.push_back((Ticket { partition, offset, epoch: owned.epoch }, delivery));
        }
    }

    /// The next delivery, if one more may be unsettled.
    pub(crate) fn take(&mut self) -> Option<(Ticket, Delivery)> {
        if self.unsettled >= self.in_flight {
            return None;
        }
        let (ticket, delivery) = self.buffer.pop_front()?;
        self.bytes -= delivery.payload().len();
        self.partitions.get_mut(&ticket.partition)?.running += 1;
        self.unsettled += 1;
        Some((ticket, delivery))
    }

    /// A delivery is finished. `false`: it was no longer ours.
    pub(crate) fn finish(&mut self, ticket: Ticket) -> bool {
        let Some(owned) = self.owned(ticket) else { return false };
        owned.running -= 1;
        owned.tracker.finish(ticket.offset);
        self.unsettled -= 1;
        true
    }

    /// A delivery was given back or forgotten: it stays unsettled, and holds the finished prefix back. `false`: it was no
    /// longer ours.
    pub(crate) fn leave_unsettled(&mut self, ticket: Ticket) -> bool {
        let Some(owned) = self.owned(ticket) else { return false };
        owned.running -= 1;
        owned.left += 1;
        true
    }

    /// A delivery that had no claim was stored.
    pub(crate) fn stored(&mut self, ticket: Ticket) {
        if let Some(owned) = self.owned(ticket) {
            owned.to_store = owned.to_store.saturating_sub(1);
        }
    }

    /// Whether a handler may begin.
    pub(crate) fn is_live(&self, ticket: Ticket) -> bool {
        self.partitions.get(&ticket.partition).is_some_and(|owned| owned.epoch == ticket.epoch && !owned.leaving)
    }

    /// These partitions are being revoked.
    pub(crate) fn leave(&mut self, partitions: &[i32]) {
        for partition in partitions {
            if let Some(owned) = self.partitions.get_mut(partition) {
                owned.leaving = true;
            }
        }
        self.forget(|partition| partitions.contains(&partition));
    }

    /// Whether deliveries of these partitions are still with somebody.
    pub(crate) fn busy(&self, partitions: &[i32]) -> bool {
        partitions.iter().filter_map(|partition| self.partitions.get(partition)).any(|owned| owned.running > 0)
    }

    /// A partition is no longer ours. Its deliveries are stale from now on.
    pub(crate) fn remove(&mut self, partition: i32) {
        if let Some(owned) = self.partitions.remove(&partition) {
            self.unsettled -= owned.running + owned.left;
            self.forget(|other| other == partition);
        }
    }

    /// Nothing is ours any more.
    pub(crate) fn clear(&mut self) {
        self.partitions.clear();
        self.unsettled = 0;
        self.discard();
    }

    /// Forgets what is buffered. It stays unfinished.
    pub(crate) fn discard(&mut self) {
        self.buffer.clear();
        self.bytes = 0;
    }

    /// How many more records of this partition may be received.
    pub(crate) fn room(&self, partition: i32) -> usize {
        let owned = self.partitions.get(&partition).filter(|owned| !owned.leaving);
        let window = owned.map_or(0, |owned| self.window.saturating_sub(owned.tracker.reach()));
        if self.bytes < ROOM { window.min(BUFFERED - self.buffer.len().min(BUFFERED)) } else { 0 }
    }

    /// The partitions that are ours and not about to leave, each with the number of its assignment.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (i32, u64)> {
        self.partitions.iter().filter(|(_, owned)| !owned.leaving).map(|(partition, owned)| (*partition, owned.epoch))
    }

    /// The finished prefixes that were not yet told: partition and last finished offset.
    pub(crate) fn progress(&mut self) -> Vec<(i32, i64)> {
        let mut progress = Vec::new();
        for (partition, owned) in &mut self.partitions {
            if let Some(finished) = owned.tracker.finished().filter(|_| owned.told != owned.tracker.finished()) {
                owned.told = Some(finished);
                progress.push((*partition, finished));
            }
        }
        progress
    }

    /// The offset that a partition stands at, if that is known.
    pub(crate) fn place(&self, partition: i32) -> Option<i64> {
        let owned = self.partitions.get(&partition)?;
        owned.tracker.delivered().map(|offset| offset + 1).or(owned.begin)
    }

    fn owned(&mut self, ticket: Ticket) -> Option<&mut Partition> {
        self.partitions.get_mut(&ticket.partition).filter(|owned| owned.epoch == ticket.epoch)
    }

    fn forget(&mut self, which: impl Fn(i32) -> bool) {
        let bytes = &mut self.bytes;
        self.buffer.retain(|(ticket, delivery)| {
            let keep = !which(ticket.partition);
            *bytes -= if keep { 0 } else { delivery.payload().len() };
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(window: usize, in_flight: usize, offsets: impl IntoIterator<Item = i64>) -> Assigned {
        let mut assigned = Assigned::new(window, in_flight);
        assigned.assign(0, Some(0));
        receive(&mut assigned, 0, offsets);
        assigned
    }

    fn receive(assigned: &mut Assigned, partition: i32, offsets: impl IntoIterator<Item = i64>) {
        let epoch = assigned.partitions[&partition].epoch;
        for offset in offsets {
            assigned.receive((partition, epoch), offset, Delivery::new("orders", offset.to_string()));
        }
    }

    fn take(assigned: &mut Assigned) -> Ticket {
        assigned.take().unwrap().0
    }

    #[test]
    fn no_more_than_in_flight_are_handed_out_over_all_partitions() {
        let mut assigned = with(10, 2, 0..2);
        assigned.assign(1, None);
        receive(&mut assigned, 1, 0..2);
        let first = take(&mut assigned);
        let second = take(&mut assigned);
        assert!(assigned.take().is_none());
        assert!(assigned.leave_unsettled(first), "a delivery that was dropped is unsettled still");
        assert!(assigned.take().is_none());
        assert!(assigned.finish(second));
        assert_eq!(take(&mut assigned).partition, 1);
        assigned.remove(0);
        assert_eq!(take(&mut assigned).partition, 1, "what was dropped of a lost partition counts no more");
    }

    #[test]
    fn deliveries_are_marked_until_a_window_of_them_was_stored() {
        let mut assigned = with(2, 10, 0..2);
        let marks =
            |assigned: &mut Assigned| assigned.take().map(|(ticket, delivery)| (ticket, delivery.redelivered()));
        let (first, marked) = marks(&mut assigned).unwrap();
        assert!(marked);
        assigned.stored(first);
        assert!(assigned.finish(first));
        let (second, _) = marks(&mut assigned).unwrap();
        assert!(assigned.finish(second), "a duplicate is acked without being stored");
        receive(&mut assigned, 0, [2]);
        let (third, marked) = marks(&mut assigned).unwrap();
        assert!(marked, "one of the two was a duplicate");
        assigned.stored(third);
        receive(&mut assigned, 0, [3]);
        assert!(!marks(&mut assigned).unwrap().1);
        assigned.assign(0, None);
        receive(&mut assigned, 0, [3]);
        assert!(marks(&mut assigned).unwrap().1, "each assignment begins anew");
    }

    #[test]
    fn a_window_is_full_until_its_front_is_finished() {
        let mut assigned = with(4, 10, 0..3);
        assert!(assigned.room(0) > 0);
        receive(&mut assigned, 0, [3]);
        assert!(assigned.room(0) == 0);
        let tickets: Vec<_> = (0..4).map(|_| take(&mut assigned)).collect();
        for ticket in &tickets[1..] {
            assert!(assigned.finish(*ticket));
            assert!(assigned.room(0) == 0, "the first still holds the prefix back");
        }
        assert!(assigned.finish(tickets[0]));
        assert!(assigned.room(0) > 0 && assigned.room(1) == 0);
    }

    #[test]
    fn a_full_buffer_leaves_no_room_in_any_partition() {
        let mut assigned = Assigned::new(100, 10);
        for partition in 0..2 {
            assigned.assign(partition, None);
            assert!(assigned.room(partition) > 0);
            let epoch = assigned.epoch;
            assigned.receive((partition, epoch), 0, Delivery::new("orders", vec![0; ROOM / 2]));
        }
        assert!(assigned.room(0) == 0 && assigned.room(1) == 0);
        take(&mut assigned);
        assert!(assigned.room(0) > 0 && assigned.room(1) > 0);
    }

    #[test]
    fn a_late_ack_of_a_partition_that_was_lost_is_stale_and_moves_nothing() {
        let mut assigned = with(10, 10, 0..2);
        let old = take(&mut assigned);
        assigned.remove(0);
        assert!(!assigned.is_live(old));
        assert!(assigned.take().is_none(), "what was buffered is dropped");
        assigned.assign(0, None);
        receive(&mut assigned, 0, 0..2);
        let new = take(&mut assigned);
        assert!(!assigned.finish(old) && !assigned.leave_unsettled(old));
        assigned.stored(old);
        assert_eq!(assigned.progress(), vec![]);
        assert!(assigned.is_live(new) && assigned.finish(new));
        assert_eq!(assigned.progress(), vec![(0, 0)]);
        assert_eq!(assigned.progress(), vec![], "told once");
    }

    #[test]
    fn a_batch_that_is_finished_is_one_offset_for_each_partition() {
        let mut assigned = Assigned::new(100, 100);
        for partition in 0..4 {
            assigned.assign(partition, None);
            receive(&mut assigned, partition, 0..25);
        }
        let batch: Vec<_> = (0..100).map(|_| take(&mut assigned)).collect();
        for ticket in batch.into_iter().rev() {
            assert!(assigned.finish(ticket));
        }
        assert_eq!(assigned.progress(), [(0, 24), (1, 24), (2, 24), (3, 24)]);
    }

    #[test]
    fn what_runs_of_a_partition_that_leaves_may_end_and_nothing_begins() {
        let mut assigned = with(10, 10, 0..3);
        let (first, second) = (take(&mut assigned), take(&mut assigned));
        assigned.leave(&[0]);
        assert!(assigned.take().is_none() && assigned.busy(&[0]));
        receive(&mut assigned, 0, [3]);
        assert!(assigned.take().is_none());
        assert!(assigned.room(0) == 0 && assigned.partitions().next().is_none());
        assert!(!assigned.is_live(first) && assigned.finish(first) && assigned.leave_unsettled(second));
        assert!(!assigned.busy(&[0]));
        assert_eq!(assigned.progress(), vec![(0, 0)]);
    }
}
