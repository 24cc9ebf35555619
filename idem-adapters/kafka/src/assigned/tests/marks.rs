//! Which deliveries are marked as redelivered after an assignment.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Takes the next delivery, and returns whether it is marked.
fn take_marked(assigned: &mut Assigned) -> (Receipt, bool) {
    let (receipt, delivery) = assigned.take().unwrap();
    (receipt, delivery.redelivered())
}

#[test]
fn deliveries_are_marked_until_a_window_of_them_is_stored_or_about_to_be() {
    let mut assigned = with(3, 10, 0..3);
    let (mut first, marked) = take_marked(&mut assigned);
    first.marked = false;
    assert!(marked && assigned.finish(&first));
    receive(&mut assigned, 0, [13]);
    let (second, third) = (take_marked(&mut assigned), take_marked(&mut assigned));
    assert!(second.1 && third.1);
    assert!(!take_marked(&mut assigned).1, "the other two may be stored as well");
    assert!(assigned.finish(&second.0) && assigned.finish(&third.0));
    assigned.assign(at(0), None);
    receive(&mut assigned, 0, [13]);
    assert!(take_marked(&mut assigned).1, "each assignment begins anew");
}

#[test]
fn one_more_delivery_is_marked_for_each_marked_duplicate() {
    let mut assigned = with(2, 10, 0..2);
    let mut marks = Vec::new();
    for (offset, stored) in [(2, false), (3, true), (4, false), (5, false)] {
        let (mut receipt, marked) = take_marked(&mut assigned);
        receipt.marked &= !stored;
        assert!(assigned.finish(&receipt));
        receive(&mut assigned, 0, [offset]);
        marks.push(marked);
    }
    assert_eq!(marks, [true, true, true, false]);
    let behind = [take_marked(&mut assigned), take_marked(&mut assigned)];
    assert!(behind.iter().all(|(receipt, marked)| !marked && assigned.finish(receipt)));
    receive(&mut assigned, 0, [6]);
    assert!(!take_marked(&mut assigned).1, "a duplicate behind the window lets no further one be marked");
}

/// A window, how many of the first deliveries are duplicates, and for each step which of the running deliveries is
/// finished, and whether as many as there is room for are received before.
fn assignment() -> impl Strategy<Value = (usize, usize, Vec<(Index, bool)>)> {
    (1..8usize, 0..12usize, vec(any::<(Index, bool)>(), 30..60))
}

proptest! {
    #[test]
    fn the_duplicates_and_a_window_behind_them_are_marked_in_whatever_order_they_are_finished(
        (window, duplicates, steps) in assignment()
    ) {
        let (mut assigned, mut running, mut next) = (with(window, 100, []), Vec::new(), 0);
        for (finishes, receives) in steps {
            if receives || running.is_empty() {
                let fits = i64::try_from(capacity(&assigned, 0)).unwrap();
                receive(&mut assigned, 0, next..next + fits);
                next += fits;
                running.extend(std::iter::from_fn(|| assigned.take()));
            }
            let (mut receipt, delivery) = running.swap_remove(finishes.index(running.len()));
            let number = usize::try_from(receipt.offset).unwrap();
            prop_assert_eq!(delivery.redelivered(), number < duplicates + window, "{}", number);
            receipt.marked &= number < duplicates;
            prop_assert!(assigned.finish(&receipt));
        }
    }
}
