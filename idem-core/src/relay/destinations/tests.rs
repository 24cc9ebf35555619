//! Tests of destinations that hang.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::super::destination::LATE;
use super::super::entry::Place;
use super::super::room::ASIDE_BYTES;
use super::*;
use crate::Outgoing;
use crate::outbox::StagedMessage;

/// After all turns of [`hanging`] have come.
const LATER: Duration = Duration::from_secs(60);

fn entry(id: i64, to: &str) -> Entry {
    let message = Arc::new(StagedMessage::new(Uuid::nil(), Outgoing::new(to, "12345")));
    Entry { lane: 0, id, message, staged: None, tries: 0, place: Place::Any }
}

/// Destinations that hang, with messages that were set aside one after the other.
fn hanging(messages: &[(i64, &str)], now: Instant) -> Destinations {
    let mut destinations = Destinations::default();
    for to in messages.iter().map(|(_, to)| *to).collect::<BTreeSet<_>>() {
        let began: Vec<bool> = (0..LATE).map(|_| destinations.late(&entry(0, to), now, now)).collect();
        assert_eq!(began.iter().position(|began| *began), Some(LATE - 1));
    }
    for (second, (id, to)) in (10..).zip(messages) {
        destinations.push(entry(*id, to), now + Duration::from_secs(second));
    }
    destinations
}

/// The messages whose turn it is.
fn turns(destinations: &mut Destinations, now: Instant) -> Vec<i64> {
    std::iter::from_fn(|| destinations.next_in_turn(now)).map(|entry| entry.id).collect()
}

/// The messages that may go on.
fn go_on(destinations: &mut Destinations) -> Vec<i64> {
    std::iter::from_fn(|| destinations.next_to_go_on()).map(|entry| entry.id).collect()
}

#[tokio::test]
async fn a_destination_hangs_when_more_messages_get_no_answer_than_are_confirmed() {
    let (mut destinations, now) = (Destinations::default(), Instant::now());
    let (first, again) = (entry(1, "a"), Entry { tries: 1, ..entry(1, "a") });
    let aside = Entry { place: Place::GoesOn, ..entry(1, "a") };
    for _ in 0..10 * LATE {
        assert!(!destinations.late(&first, now, now));
        assert!(destinations.confirmed(&first).is_none(), "they are as many");
    }
    assert!(destinations.of.is_empty());
    for _ in 1..LATE {
        assert!(!destinations.late(&first, now, now) && !destinations.late(&again, now, now));
        assert!(!destinations.late(&aside, now, now));
    }
    assert!(!destinations.hangs("a"));
    assert!(destinations.late(&first, now, now) && !destinations.late(&first, now, now), "told once");
    assert!(destinations.hangs("a") && !destinations.hangs("b"));
    assert!(destinations.confirmed(&first).is_none() && destinations.hangs("a"), "it may be from before");
    assert_eq!(destinations.confirmed(&aside).map(|tried| tried.len()), Some(0));
    assert!(!destinations.hangs("a") && destinations.confirmed(&aside).is_none());
}

#[tokio::test]
async fn destinations_take_turns_and_each_is_tried_with_one_message_at_a_time() {
    let now = Instant::now();
    let mut destinations = hanging(&[(1, "c"), (4, "c"), (2, "c"), (3, "a"), (5, "b"), (6, "b")], now);
    let later = now + LATER;
    let first = destinations.next_in_turn(later).unwrap();
    assert_eq!((first.id, first.place), (1, Place::Aside));
    destinations.push(entry(7, "c"), later);
    assert_eq!((turns(&mut destinations, later), destinations.next_due()), (vec![3, 5], None));
    destinations.ended(&first, later);
    assert_eq!(turns(&mut destinations, later), [4]);
    destinations.ended(&first, later);
    assert!(turns(&mut destinations, later).is_empty(), "it is tried with another one");
}

#[tokio::test]
async fn a_destination_that_gives_no_answer_is_tried_after_a_delay_that_grows() {
    let mut destinations = hanging(&[(1, "a"), (2, "a")], Instant::now());
    let mut delays = Vec::new();
    for _ in 0..10 {
        let due = destinations.next_due().unwrap();
        assert!(destinations.next_in_turn(due - Duration::from_millis(1)).is_none());
        let tried = destinations.next_in_turn(due).unwrap();
        let now = due + Duration::from_secs(10);
        for entry in [&tried, &entry(9, "a")] {
            destinations.late(entry, due, now);
        }
        destinations.ended(&tried, now);
        destinations.push(Entry { tries: tried.tries + 1, ..tried }, now);
        delays.push(destinations.next_due().unwrap() - now);
    }
    assert!(delays[0] < Duration::from_millis(300) && delays[9] > Duration::from_secs(4), "{delays:?}");
    let due = destinations.next_due().unwrap();
    let tried = destinations.next_in_turn(due).unwrap();
    destinations.push(entry(3, "a"), due);
    assert!(destinations.confirmed(&tried).is_none(), "one waits that was not tried");
    destinations.ended(&tried, due);
    assert_eq!(destinations.next_due(), Some(due), "it has answered");
    let tried = destinations.next_in_turn(due).unwrap();
    destinations.late(&tried, due, due);
    destinations.ended(&tried, due);
    assert!(destinations.next_due().unwrap() - due < Duration::from_millis(300), "the delay begins anew");
}

#[tokio::test]
async fn messages_that_got_no_answer_let_others_go_first() {
    let now = Instant::now();
    let mut destinations = hanging(&[(1, "a")], now);
    let later = now + LATER;
    let first = destinations.next_in_turn(later).unwrap();
    destinations.ended(&first, later);
    destinations.push(Entry { tries: 1, ..first }, later);
    destinations.push(entry(2, "a"), later);
    let second = destinations.next_in_turn(later).unwrap();
    assert_eq!(second.id, 2);
    let tried = destinations.confirmed(&second).unwrap();
    assert_eq!(tried.iter().map(|entry| entry.id).collect::<Vec<_>>(), [1]);
    destinations.ended(&second, later);
    assert_eq!((destinations.len(), destinations.bytes(), destinations.next_due()), (0, 0, None));
}

#[tokio::test]
async fn for_each_message_that_is_confirmed_two_go_on() {
    let now = Instant::now();
    let mut destinations = hanging(&[(1, "a"), (2, "a"), (3, "a"), (4, "a"), (5, "b")], now);
    let first = destinations.next_in_turn(now + LATER).unwrap();
    assert!(go_on(&mut destinations).is_empty());
    assert!(destinations.confirmed(&first).is_none() && destinations.hangs("a"));
    assert_eq!(destinations.next_to_go_on().map(|entry| (entry.id, entry.place)), Some((2, Place::GoesOn)));
    destinations.late(&entry(9, "a"), now, now);
    assert!(go_on(&mut destinations).is_empty(), "it gives no answer again");
    for _ in 0..100 {
        destinations.confirmed(&first);
    }
    assert_eq!((destinations.of["a"].go_on, destinations.go_on.len()), (2, 1), "there are only two");
    assert_eq!(go_on(&mut destinations), [3, 4]);
    assert!(destinations.confirmed(&first).is_some() && !destinations.hangs("a"));
    assert_eq!((destinations.hangs("b"), turns(&mut destinations, now + LATER)), (true, vec![5]));
}

#[tokio::test]
async fn messages_keep_their_room_until_they_are_published() {
    let now = Instant::now();
    let mut destinations = hanging(&[(1, "a"), (2, "a"), (3, "b")], now);
    let (room, later, other) = (Room(1), now + LATER, entry(6, "b"));
    assert_eq!((destinations.len(), destinations.bytes(), destinations.has_room(&other, room)), (3, 15, true));
    let first = destinations.next_in_turn(later).unwrap();
    assert_eq!(destinations.len(), 3);
    destinations.push(entry(4, "b"), later);
    destinations.push(entry(5, "b"), later);
    assert!(!destinations.has_room(&other, room));
    destinations.ended(&first, later);
    destinations.ended(&other, later);
    assert!(destinations.has_room(&other, room), "the second one was not aside");
    destinations.retain(|entry| entry.id > 3);
    assert_eq!((destinations.len(), destinations.bytes(), turns(&mut destinations, later)), (2, 10, vec![4]));
    let large = StagedMessage::new(Uuid::nil(), Outgoing::new("a", vec![0; ASIDE_BYTES]));
    destinations.push(Entry { message: Arc::new(large), ..entry(7, "a") }, later);
    assert!(!destinations.has_room(&other, Room(1000)));
    assert_eq!(turns(&mut destinations, later), [7]);
}

#[tokio::test]
async fn no_more_destinations_than_a_limit_are_known() {
    let now = Instant::now();
    let mut destinations = hanging(&[(1, "a")], now);
    for number in 0..2 * KNOWN {
        destinations.late(&entry(2, &number.to_string()), now, now);
    }
    assert!(destinations.of.len() <= KNOWN && destinations.hangs("a"));
    for number in 0..KNOWN * LATE {
        let late = entry(2, &(number / LATE).to_string());
        if destinations.late(&late, now, now) {
            destinations.push(late, now);
        }
    }
    assert_eq!((destinations.of.len(), destinations.hangs("a")), (KNOWN, true));
    assert!(!destinations.late(&entry(2, "another"), now, now) && destinations.of.len() == KNOWN);
    // Their lanes are lost.
    destinations.retain(|entry| entry.id == 1);
    destinations.late(&entry(2, "another"), now, now);
    assert_eq!((destinations.of.len(), destinations.turns.len(), destinations.hangs("a")), (2, 1, true));
}

#[tokio::test]
async fn messages_that_got_no_answer_are_tried_when_others_are_confirmed() {
    let now = Instant::now();
    let mut destinations = hanging(&[(1, "a"), (2, "a"), (3, "a"), (4, "a")], now);
    let (later, last) = (now + LATER, now + 2 * LATER);
    let first = destinations.next_in_turn(later).unwrap();
    destinations.late(&first, later, later);
    destinations.ended(&first, later);
    destinations.push(Entry { tries: 1, ..first }, later);
    let second = destinations.next_in_turn(last).unwrap();
    assert!(second.id == 2 && destinations.confirmed(&second).is_none());
    destinations.ended(&second, last);
    assert_eq!((turns(&mut destinations, last), go_on(&mut destinations)), (vec![1], vec![3, 4]));
}

#[tokio::test]
async fn a_destination_hangs_while_many_messages_got_no_answer() {
    let now = Instant::now();
    let mut destinations = hanging(&[], now);
    (0..502).for_each(|id| destinations.push(Entry { tries: 1, ..entry(id, "a") }, now));
    let answers = [false, true].map(|ends| {
        let next = destinations.next_in_turn(now).unwrap();
        let ended = destinations.confirmed(&next);
        destinations.ended(&next, now);
        assert_eq!(ended.map(|tried| tried.len()), ends.then_some(500));
        destinations.hangs("a")
    });
    assert_eq!(answers, [true, false]);
}

/// The slow one has taken places before the other one answers again, and holds each of them for longer.
#[tokio::test]
async fn a_slow_destination_leaves_places_to_one_that_answers_again() {
    let (now, later) = (Instant::now(), Instant::now() + LATER);
    let messages = (1..=9).map(|id| (id, "slow")).chain((11..=16).map(|id| (id, "back")));
    let mut destinations = hanging(&messages.collect::<Vec<_>>(), now);
    let [slow, back] = [(), ()].map(|()| destinations.next_in_turn(later).unwrap());
    assert_eq!((slow.id, back.id), (1, 11));
    let next = |destinations: &mut Destinations| -> Vec<Entry> {
        std::iter::from_fn(|| destinations.next_to_go_on()).collect()
    };
    let ids = |entries: &[Entry]| entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
    for _ in 0..2 {
        destinations.confirmed(&slow);
    }
    let of_slow = next(&mut destinations);
    for confirmed in [&slow, &back, &back] {
        destinations.confirmed(confirmed);
    }
    let of_both = next(&mut destinations);
    assert_eq!((ids(&of_slow), ids(&of_both)), (vec![2, 3, 4, 5], vec![12, 13, 14, 15, 6, 7]));
    // All of the slow one end, and none of the other one.
    for entry in of_slow.iter().chain(&of_both[4..]) {
        destinations.ended(entry, later);
    }
    for confirmed in [&back, &slow] {
        destinations.confirmed(confirmed);
    }
    assert_eq!(ids(&next(&mut destinations)), [8, 9, 16]);
}
