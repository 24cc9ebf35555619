//! Tests of `Assigned`, without a client.

use std::collections::BTreeSet;

use super::*;

mod marks;

fn at(number: i32) -> TopicPartition {
    TopicPartition::new(&"orders".into(), number)
}

fn with(window: usize, max_unsettled: usize, offsets: impl IntoIterator<Item = i64>) -> Assigned {
    let mut assigned = Assigned::new(window, max_unsettled, DeliveryOrder::None);
    assigned.assign(at(0), Some(0));
    receive(&mut assigned, 0, offsets);
    assigned
}

fn receive(assigned: &mut Assigned, partition: i32, offsets: impl IntoIterator<Item = i64>) {
    let epoch = epoch(assigned, partition);
    for offset in offsets {
        assigned.receive(epoch, offset, Delivery::new("orders", offset.to_string()));
    }
}

/// The epoch of the present assignment of this partition. No assignment has the epoch 0.
fn epoch(assigned: &Assigned, partition: i32) -> u64 {
    assigned.epochs.get(&at(partition)).copied().unwrap_or_default()
}

fn capacity(assigned: &Assigned, partition: i32) -> usize {
    assigned.capacity(epoch(assigned, partition))
}

fn wants(assigned: &Assigned, partition: i32) -> bool {
    assigned.wants(epoch(assigned, partition))
}

fn take(assigned: &mut Assigned) -> Receipt {
    assigned.take().unwrap().0
}

#[test]
fn no_more_than_in_flight_are_handed_out_over_all_partitions() {
    let mut assigned = with(10, 2, 0..2);
    assigned.assign(at(1), None);
    receive(&mut assigned, 1, 0..2);
    let first = take(&mut assigned);
    let second = take(&mut assigned);
    assert!(assigned.take().is_none());
    assert!(assigned.leave_unsettled(&first), "a delivery that was dropped is unsettled still");
    assert!(assigned.take().is_none());
    assert!(assigned.finish(&second));
    assert_eq!(take(&mut assigned).assignment.partition, at(0));
    assigned.remove(&at(0));
    assert_eq!(take(&mut assigned).assignment.partition, at(1), "what was dropped of a lost partition counts no more");
}

#[test]
fn the_position_passes_over_skipped_records_only_if_nothing_is_unfinished() {
    let mut assigned = with(4, 10, [0]);
    let first = epoch(&assigned, 0);
    assigned.pass(first, 3);
    assert_eq!(assigned.progress(), [], "the first is unfinished");
    let receipt = take(&mut assigned);
    assert!(assigned.finish(&receipt));
    assigned.pass(first, 3);
    assert_eq!(assigned.progress(), [(at(0), 2)]);
    for next in [1, 3] {
        assigned.pass(first, next);
        assert_eq!(assigned.progress(), [], "it never goes back");
    }
    receive(&mut assigned, 0, [3]);
    let receipt = take(&mut assigned);
    assert!(assigned.finish(&receipt));
    assigned.leave(&[at(0)]);
    assigned.pass(first, 9);
    assigned.assign(at(1), Some(5));
    assigned.pass(first + 2, 9);
    assigned.pass(first + 1, 5);
    assert_eq!(assigned.progress(), [(at(0), 3)], "others are not concerned");
}

#[test]
fn a_window_is_full_until_its_front_is_finished() {
    let mut assigned = with(4, 10, 0..3);
    assert!(capacity(&assigned, 0) > 0);
    receive(&mut assigned, 0, [3]);
    assert!(capacity(&assigned, 0) == 0);
    let receipts: Vec<_> = (0..4).map(|_| take(&mut assigned)).collect();
    for receipt in &receipts[1..] {
        assert!(assigned.finish(receipt));
        assert!(capacity(&assigned, 0) == 0, "the first still holds the prefix back");
    }
    assert!(assigned.finish(&receipts[0]));
    assert!(capacity(&assigned, 0) > 0 && capacity(&assigned, 1) == 0);
}

#[test]
fn a_partition_that_has_used_up_its_share_of_the_room_leaves_the_others_theirs() {
    let mut assigned = Assigned::new(100, 10, DeliveryOrder::None);
    for partition in 0..2 {
        assigned.assign(at(partition), None);
    }
    let first = epoch(&assigned, 0);
    assigned.receive(first, 0, Delivery::new("orders", vec![0; CAPACITY / 2]));
    assert!(capacity(&assigned, 0) == 0 && capacity(&assigned, 1) > 0);
    take(&mut assigned);
    assert!(capacity(&assigned, 0) > 0);
}

#[test]
fn many_partitions_share_what_may_be_buffered_and_each_may_receive() {
    let mut assigned = Assigned::new(4000, 10, DeliveryOrder::None);
    for partition in 0..4 {
        assigned.assign(at(partition), None);
    }
    assert_eq!(capacity(&assigned, 0), BUFFERED / 4);
    receive(&mut assigned, 0, 0..500);
    assert_eq!((capacity(&assigned, 0), capacity(&assigned, 1)), (BUFFERED / 4 - 500, BUFFERED / 4));
    for partition in 0..3000 {
        assigned.assign(at(partition), None);
    }
    assert_eq!(capacity(&assigned, 2999), 1);
}

#[test]
fn deliveries_with_the_worker_use_room_until_they_are_settled() {
    let mut assigned = Assigned::new(100, 10, DeliveryOrder::None);
    assigned.assign(at(0), None);
    let epoch = assigned.epoch;
    for offset in 0..3 {
        assigned.receive(epoch, offset, Delivery::new("orders", vec![0; CAPACITY / 2]));
    }
    let (first, _second) = (take(&mut assigned), take(&mut assigned));
    assert!(assigned.take().is_none());
    assert!(assigned.finish(&first));
    take(&mut assigned);
    assigned.remove(&at(0));
    assert_eq!(assigned.held, 0);
}

#[test]
fn partitions_take_turns() {
    let mut assigned = with(100, 100, 0..3);
    for partition in [1, 2] {
        assigned.assign(at(partition), None);
        receive(&mut assigned, partition, 0..3);
    }
    let turns: Vec<_> = (0..6)
        .map(|_| take(&mut assigned))
        .map(|receipt| (receipt.assignment.partition.number, receipt.offset))
        .collect();
    assert_eq!(turns, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
}

/// Takes all deliveries that can be taken while none is settled.
fn takes(assigned: &mut Assigned) -> usize {
    std::iter::from_fn(|| assigned.take()).count()
}

#[test]
fn a_partition_of_which_nothing_is_settled_leaves_room_for_the_others() {
    for (order, most) in [(DeliveryOrder::Key, [50, 25, 13, 6]), (DeliveryOrder::None, [89, 10, 1, 0])] {
        let mut assigned = Assigned::new(1000, 100, order);
        for partition in 0..4 {
            assigned.assign(at(partition), None);
        }
        for (partition, most) in (0..).zip(most) {
            receive(&mut assigned, partition, 0..100);
            assert_eq!(takes(&mut assigned), most, "{order:?}, {partition}");
        }
    }
}

#[test]
fn the_room_is_what_is_unsettled_once_nothing_more_is_handed_out() {
    let mut assigned = Assigned::new(100, 16, DeliveryOrder::Key);
    for partition in 0..2 {
        assigned.assign(at(partition), None);
    }
    assert_eq!(assigned.full(), None, "there is nothing to hand out");
    for partition in 0..2 {
        receive(&mut assigned, partition, 0..20);
    }
    let first = take(&mut assigned);
    let all = 1 + takes(&mut assigned);
    assert!(all < 16);
    assert_eq!(assigned.full(), Some(all));
    assert!(assigned.finish(&first));
    assert_eq!(assigned.full(), None);
}

#[test]
fn a_partition_may_always_have_one_delivery_and_a_single_one_may_have_all() {
    for order in [DeliveryOrder::Key, DeliveryOrder::None] {
        let mut assigned = Assigned::new(100, 1, order);
        for partition in 0..2 {
            assigned.assign(at(partition), None);
            receive(&mut assigned, partition, 0..10);
        }
        let one = take(&mut assigned);
        assert!(assigned.take().is_none() && assigned.finish(&one));
        assert_eq!(take(&mut assigned).assignment.partition, at(1));
        let mut single = Assigned::new(100, 10, order);
        single.assign(at(0), None);
        receive(&mut single, 0, 0..20);
        assert_eq!(takes(&mut single), 10);
    }
}

#[test]
fn a_partition_whose_payloads_are_large_leaves_room_for_the_others() {
    let mut assigned = Assigned::new(100, 100, DeliveryOrder::None);
    for partition in 0..2 {
        assigned.assign(at(partition), None);
    }
    for partition in 0..2 {
        let epoch = epoch(&assigned, partition);
        for offset in 0..2 {
            assigned.receive(epoch, offset, Delivery::new("orders", vec![0; CAPACITY / 2]));
        }
        assert_eq!(takes(&mut assigned), 1);
    }
}

#[test]
fn a_reader_is_worth_waking_for_half_of_what_fits_or_if_nothing_is_left_to_hand_out() {
    let mut assigned = with(8, 100, 0..8);
    let receipts: Vec<_> = (0..5).map(|_| take(&mut assigned)).collect();
    let wanted: Vec<_> = receipts.iter().map(|receipt| assigned.finish(receipt) && wants(&assigned, 0)).collect();
    assert_eq!(wanted, [false, false, false, true, true]);
    // Behind a slow delivery, there is never room for half.
    let mut assigned = with(8, 100, 0..5);
    let (_slow, second) = (take(&mut assigned), take(&mut assigned));
    receive(&mut assigned, 0, 5..7);
    assert!(assigned.finish(&second) && !wants(&assigned, 0), "there is something to hand out");
    while assigned.take().is_some() {}
    assert!(wants(&assigned, 0));
    receive(&mut assigned, 0, [7]);
    take(&mut assigned);
    assert!(!wants(&assigned, 0) && !wants(&assigned, 1), "there is no room");
}

#[test]
fn one_delivery_of_each_ordering_key_is_with_the_worker() {
    let mut assigned = Assigned::new(100, 100, DeliveryOrder::None);
    assigned.assign(at(0), None);
    let epoch = assigned.epoch;
    for (offset, key) in [(0, Some(7)), (1, Some(7)), (2, Some(8)), (3, None), (4, Some(7)), (5, None)] {
        assigned.receive(epoch, offset, Delivery::new("orders", "x").with_ordering_key(key));
    }
    let first: Vec<_> = std::iter::from_fn(|| assigned.take()).map(|(receipt, _)| receipt).collect();
    assert_eq!(first.iter().map(|receipt| receipt.offset).collect::<Vec<_>>(), [0, 2, 3, 5]);
    assert!(assigned.finish(&first[1]) && assigned.take().is_none(), "nothing is behind it");
    assert!(assigned.finish(&first[0]));
    let second = take(&mut assigned);
    assert_eq!(second.offset, 1);
    assert!(assigned.leave_unsettled(&second));
    assert!(assigned.take().is_none(), "what comes behind one that was released must not pass it");
}

#[test]
fn a_late_ack_of_a_partition_that_was_lost_is_stale_and_moves_nothing() {
    let mut assigned = with(10, 10, 0..2);
    let old = take(&mut assigned);
    assigned.remove(&at(0));
    assert!(!old.assignment.is_live());
    assert!(assigned.take().is_none(), "what was buffered is dropped");
    assigned.assign(at(0), None);
    receive(&mut assigned, 0, 0..2);
    let new = take(&mut assigned);
    assert!(!assigned.finish(&old) && !assigned.leave_unsettled(&old));
    assert_eq!(assigned.progress(), vec![]);
    assert!(new.assignment.is_live() && assigned.finish(&new));
    assert_eq!(assigned.progress(), vec![(at(0), 0)]);
    assert_eq!(assigned.progress(), vec![], "reported once");
}

#[test]
fn a_batch_that_is_finished_is_one_offset_for_each_partition() {
    let mut assigned = Assigned::new(100, 200, DeliveryOrder::None);
    for partition in 0..4 {
        assigned.assign(at(partition), None);
        receive(&mut assigned, partition, 0..25);
    }
    let batch: Vec<_> = (0..100).map(|_| take(&mut assigned)).collect();
    for receipt in batch.iter().rev() {
        assert!(assigned.finish(receipt));
    }
    assert_eq!(assigned.progress(), [(at(0), 24), (at(1), 24), (at(2), 24), (at(3), 24)]);
}

#[test]
fn running_deliveries_of_a_revoked_partition_may_end_and_none_begins() {
    let mut assigned = with(10, 10, 0..3);
    let (first, second) = (take(&mut assigned), take(&mut assigned));
    assigned.leave(&[at(0)]);
    assert!(assigned.take().is_none() && assigned.busy(&[at(0)]));
    receive(&mut assigned, 0, [3]);
    assert!(assigned.take().is_none());
    assert!(capacity(&assigned, 0) == 0 && assigned.partitions().next().is_none());
    assert!(!first.assignment.is_live() && assigned.finish(&first) && assigned.leave_unsettled(&second));
    assert!(!assigned.busy(&[at(0)]));
    assert_eq!(assigned.progress(), vec![(at(0), 0)]);
}

#[test]
fn each_change_of_the_assigned_partitions_is_seen_by_its_number() {
    let mut assigned = with(4, 10, 0..2);
    let mut seen = BTreeSet::from([assigned.changes()]);
    let receipt = take(&mut assigned);
    assert!(assigned.finish(&receipt) && !seen.insert(assigned.changes()), "they are the same");
    assigned.assign(at(1), None);
    assert!(seen.insert(assigned.changes()));
    assigned.leave(&[at(1)]);
    assert!(seen.insert(assigned.changes()), "it is being revoked");
    assigned.remove(&at(1));
    assert!(seen.insert(assigned.changes()));
    assigned.clear();
    assert!(seen.insert(assigned.changes()));
}
