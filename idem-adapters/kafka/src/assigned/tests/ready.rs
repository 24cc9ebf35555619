//! Whether records are ready, and whether the assigned partitions have changed.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Assign(i32),
    Receive(i32, Option<u64>),
    Take,
    Finish(Index),
    LeaveUnsettled(Index),
    Leave(i32),
    Remove(i32),
    Discard,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let partition = || 0..3_i32;
    prop_oneof![
        2 => partition().prop_map(Step::Assign),
        6 => (partition(), option::of(0..3_u64)).prop_map(|(partition, key)| Step::Receive(partition, key)),
        4 => Just(Step::Take),
        3 => any::<Index>().prop_map(Step::Finish),
        1 => any::<Index>().prop_map(Step::LeaveUnsettled),
        1 => partition().prop_map(Step::Leave),
        1 => partition().prop_map(Step::Remove),
        1 => Just(Step::Discard),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #[test]
    fn the_records_that_are_ready_are_counted_whatever_happens(steps in vec(step(), 1..80)) {
        let (mut assigned, mut running, mut offset) = (Assigned::new(100, 5, DeliveryOrder::Key), Vec::new(), 0);
        for step in steps {
            match step {
                Step::Assign(partition) => assigned.assign(at(partition), None),
                Step::Receive(partition, key) => {
                    offset += 1;
                    let epoch = epoch(&assigned, partition);
                    assigned.receive(epoch, offset, Delivery::new("orders", "x").with_ordering_key(key));
                }
                Step::Take => running.extend(assigned.take().map(|(ticket, _)| ticket)),
                Step::Finish(_) | Step::LeaveUnsettled(_) if running.is_empty() => {}
                Step::Finish(which) => {
                    let ticket: Ticket = running.swap_remove(which.index(running.len()));
                    assigned.finish(&ticket);
                }
                Step::LeaveUnsettled(which) => {
                    let ticket = running.swap_remove(which.index(running.len()));
                    assigned.leave_unsettled(&ticket);
                }
                Step::Leave(partition) => assigned.leave(&[at(partition)]),
                Step::Remove(partition) => assigned.remove(&at(partition)),
                Step::Discard => assigned.discard(),
                Step::Clear => assigned.clear(),
            }
            let ready: usize = assigned.partitions.values().map(|owned| owned.buffer.ready()).sum();
            prop_assert_eq!((assigned.ready, assigned.is_ready()), (ready, ready > 0));
        }
    }
}

#[test]
fn each_change_of_the_assigned_partitions_is_seen_by_its_number() {
    let mut assigned = with(4, 10, 0..2);
    let mut seen = BTreeSet::from([assigned.changes()]);
    let ticket = take(&mut assigned);
    assert!(assigned.finish(&ticket) && !seen.insert(assigned.changes()), "they are the same");
    assigned.assign(at(1), None);
    assert!(seen.insert(assigned.changes()));
    assigned.leave(&[at(1)]);
    assert!(seen.insert(assigned.changes()), "it is being revoked");
    assigned.remove(&at(1));
    assert!(seen.insert(assigned.changes()));
    assigned.clear();
    assert!(seen.insert(assigned.changes()));
}
