//! Which deliveries are marked as redelivered after an assignment.

use super::*;

/// Takes the next delivery, and returns whether it is marked.
fn take_marked(assigned: &mut Assigned) -> (Ticket, bool) {
    let (ticket, delivery) = assigned.take().unwrap();
    (ticket, delivery.redelivered())
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
        let (mut ticket, marked) = take_marked(&mut assigned);
        ticket.marked &= !stored;
        assert!(assigned.finish(&ticket));
        receive(&mut assigned, 0, [offset]);
        marks.push(marked);
    }
    assert_eq!(marks, [true, true, true, false]);
    let behind = [take_marked(&mut assigned), take_marked(&mut assigned)];
    assert!(behind.iter().all(|(ticket, marked)| !marked && assigned.finish(ticket)));
    receive(&mut assigned, 0, [6]);
    assert!(!take_marked(&mut assigned).1, "a duplicate behind the window lets no further one be marked");
}
