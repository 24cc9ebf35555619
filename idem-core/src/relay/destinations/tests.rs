//! Tests of destinations that hang.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::Outgoing;
use crate::outbox::StagedMessage;

fn entry(id: i64, to: &str) -> Entry {
    let message = Arc::new(StagedMessage::new(Uuid::nil(), Outgoing::new(to, "12345")));
    Entry { lane: 0, id, message, staged: None, tries: 0, place: Place::Any }
}

/// Destinations that hang, with the messages that were set aside.
fn hanging(messages: &[(i64, &str)]) -> Destinations {
    let mut destinations = Destinations::default();
    for to in messages.iter().map(|(_, to)| *to).collect::<BTreeSet<_>>() {
        let began: Vec<bool> = (0..LATE).map(|_| destinations.late(&entry(0, to))).collect();
        assert_eq!(began.iter().position(|began| *began), Some(LATE - 1));
    }
    messages.iter().for_each(|(id, to)| destinations.push(entry(*id, to)));
    destinations
}

/// The messages whose turn it is.
fn turns(destinations: &mut Destinations) -> Vec<i64> {
    std::iter::from_fn(|| destinations.next_in_turn()).map(|entry| entry.id).collect()
}

/// The messages that may go on.
fn go_on(destinations: &mut Destinations) -> Vec<i64> {
    std::iter::from_fn(|| destinations.next_to_go_on()).map(|entry| entry.id).collect()
}

#[test]
fn a_destination_hangs_when_more_messages_get_no_answer_than_are_confirmed() {
    let mut destinations = Destinations::default();
    for _ in 0..10 * LATE {
        assert!(!destinations.late(&entry(1, "a")));
        assert!(!destinations.confirmed("a"), "they are as many");
    }
    assert!(destinations.of.is_empty());
    let again = Entry { tries: 1, ..entry(1, "a") };
    for _ in 1..LATE {
        assert!(!destinations.late(&entry(1, "a")) && !destinations.late(&again));
    }
    assert!(!destinations.hangs("a"));
    assert!(destinations.late(&entry(1, "a")) && !destinations.late(&entry(1, "a")), "told once");
    assert!(destinations.hangs("a") && !destinations.hangs("b"));
    assert!(destinations.confirmed("a") && !destinations.hangs("a"), "no other is aside");
    assert!(!destinations.confirmed("a"));
}

#[test]
fn destinations_take_turns_and_messages_of_one_leave_as_they_came() {
    let mut destinations = hanging(&[(1, "a"), (4, "a"), (2, "a"), (3, "b"), (5, "c"), (6, "c")]);
    assert_eq!(turns(&mut destinations), [1, 3, 5, 4, 6, 2]);
    assert!(destinations.turns.is_empty());
    destinations.push(entry(1, "a"));
    assert_eq!(destinations.turns, ["a"]);
}

#[test]
fn for_each_message_that_is_confirmed_two_go_on() {
    let mut destinations = hanging(&[(1, "a"), (2, "a"), (3, "a"), (4, "a"), (5, "b")]);
    assert_eq!(destinations.next_in_turn().map(|entry| (entry.id, entry.place)), Some((1, Place::Aside)));
    assert!(go_on(&mut destinations).is_empty());
    assert!(!destinations.confirmed("a") && destinations.hangs("a"));
    assert_eq!(destinations.next_to_go_on().map(|entry| (entry.id, entry.place)), Some((2, Place::GoesOn)));
    destinations.late(&entry(9, "a"));
    assert!(go_on(&mut destinations).is_empty(), "it gives no answer again");
    for _ in 0..100 {
        destinations.confirmed("a");
    }
    assert!(destinations.go_on.len() < 10, "there are only two");
    assert_eq!(go_on(&mut destinations), [3, 4]);
    assert!(destinations.confirmed("a") && !destinations.hangs("a"));
    assert_eq!((destinations.hangs("b"), turns(&mut destinations)), (true, vec![5]));
}

#[test]
fn messages_keep_their_room_until_they_are_published() {
    let mut destinations = hanging(&[(1, "a"), (2, "a"), (3, "b")]);
    let room = Room(1);
    assert_eq!((destinations.len(), destinations.bytes(), destinations.has_room(room)), (3, 15, true));
    let first = destinations.next_in_turn().unwrap();
    assert_eq!(destinations.len(), 3);
    destinations.push(entry(4, "b"));
    destinations.push(entry(5, "b"));
    assert!(!destinations.has_room(room));
    destinations.ended(&first);
    destinations.ended(&entry(6, "b"));
    assert!(destinations.has_room(room), "the second one was not aside");
    destinations.retain(|entry| entry.id > 3);
    assert_eq!((destinations.len(), destinations.bytes(), turns(&mut destinations)), (2, 10, vec![4, 5]));
    let large = StagedMessage::new(Uuid::nil(), Outgoing::new("a", vec![0; ASIDE_BYTES]));
    destinations.push(Entry { message: Arc::new(large), ..entry(7, "a") });
    assert!(!destinations.has_room(Room(1000)));
}

#[test]
fn no_more_destinations_than_a_limit_are_known() {
    let mut destinations = hanging(&[(1, "a")]);
    for number in 0..2 * KNOWN {
        destinations.late(&entry(2, &number.to_string()));
    }
    assert!(destinations.of.len() <= KNOWN && destinations.hangs("a"));
    for number in 0..KNOWN * LATE {
        destinations.late(&entry(2, &(number / LATE).to_string()));
    }
    assert_eq!((destinations.of.len(), destinations.hangs("a")), (KNOWN, true));
    assert!(!destinations.late(&entry(2, "another")) && !destinations.hangs("another"));
}
