//! Tests of messages that are set aside.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::super::level::Covered;
use super::super::queue::tests::row;
use super::super::room::{MANY, Room};
use super::*;
use crate::outbox::StagedMessage;
use crate::store::OutboxRow;
use crate::{Key, Outgoing};

/// Messages of a key.
fn rows(ids: std::ops::RangeInclusive<i64>) -> Vec<OutboxRow> {
    ids.map(|id| row(id, Some("k"))).collect()
}

/// The keys that the next read leaves out, and from where on it is to read for others.
fn asks(queue: &mut Queue) -> (Vec<Key>, Option<i64>) {
    let asks = queue.ask(false, false);
    (asks.keys, asks.behind.get(&0).map(|look| look.floor))
}

/// After all turns have come.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A queue whose destination hangs.
fn hanging() -> Queue {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.add((1001..=1016).map(|id| row(id, None)).collect(), now);
    while let Some(entry) = queue.next(false) {
        queue.destinations.late(&entry, now, now);
        queue.leave(&entry);
    }
    queue
}

/// The next message; `aside` says whether there are places for those that were set aside.
fn next(queue: &mut Queue, aside: bool) -> Option<Entry> {
    queue.next_to_publish(later(), |place| aside || !matches!(place, Place::Aside | Place::GoesOn))
}

fn to_publish(queue: &mut Queue, aside: bool) -> Vec<i64> {
    std::iter::from_fn(|| next(queue, aside)).map(|entry| entry.id).collect()
}

/// The broker confirms a message. Returns whether its destination answers again.
fn confirm(queue: &mut Queue, entry: &Entry) -> bool {
    let answers = queue.confirmed(entry, later());
    queue.destinations.ended(entry, later());
    queue.advance(entry);
    queue.forget([entry.id]);
    answers
}

#[tokio::test]
async fn a_message_that_is_set_aside_keeps_those_behind_it() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.add([rows(1..=2), vec![row(3, None)]].concat(), now);
    assert!(to_publish(&mut queue, false).is_empty());
    assert_eq!((queue.len(), queue.firsts(), queue.destinations.len()), (0, 0, 2));
    assert_eq!(asks(&mut queue), (vec![Key::of("k").unwrap()], None));
    assert_eq!(queue.add(rows(2..=2), now), 0, "it is unread");
    let first = next(&mut queue, true).unwrap();
    assert_eq!((first.id, asks(&mut queue).1), (1, None), "it may get no answer for long");
    assert!(!confirm(&mut queue, &first) && queue.goes_on());
    let look = queue.ask(false, false).behind[&0];
    assert_eq!((look.floor, look.limit), (2, 1), "the destination hangs, and the next one may be for it");
    queue.covered(&BTreeMap::from([(0, Covered { from: 1, to: Some(2) })]));
    queue.add(rows(2..=2), now);
    assert!(to_publish(&mut queue, false).is_empty());
    let rest: Vec<Entry> = std::iter::from_fn(|| next(&mut queue, true)).collect();
    assert_eq!(rest.iter().map(|entry| entry.id).collect::<Vec<_>>(), [3, 2]);
    assert!(confirm(&mut queue, &rest[0]) && !confirm(&mut queue, &rest[1]));
    let look = queue.ask(false, true).behind[&0];
    assert_eq!((look.floor, usize::try_from(look.limit)), (3, Ok(MANY)), "it answers again");
    assert_eq!((queue.known.len(), queue.destinations.len()), (0, 0));
}

#[tokio::test]
async fn of_a_key_whose_message_is_aside_no_other_is_kept() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.add(vec![row(2, Some("k"))], now);
    assert!(to_publish(&mut queue, false).is_empty());
    // The first one was committed late.
    assert_eq!(queue.add(vec![row(1, Some("k")), row(3, Some("k"))], now), 0);
    assert_eq!((queue.known.len(), queue.behind, asks(&mut queue).0.len()), (1, 0, 1));
    let second = next(&mut queue, true).unwrap();
    queue.destinations.ended(&second, now);
    queue.hold(&second);
    assert_eq!((second.id, asks(&mut queue).1), (2, None), "it was refused");
    queue.give_up(&second);
    assert_eq!(asks(&mut queue), (vec![], Some(1)));
}

#[tokio::test]
async fn what_is_aside_is_forgotten_with_its_lane() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.add(vec![row(1, Some("k")), row(2, None)], now);
    assert!(to_publish(&mut queue, false).is_empty());
    let first = next(&mut queue, true).unwrap();
    queue.drop_lanes(&BTreeSet::from([0]));
    assert!(queue.keys.is_empty() && queue.known.len() == 0);
    queue.destinations.ended(&first, now);
    assert!(to_publish(&mut queue, true).is_empty());
    assert_eq!((first.id, queue.destinations.len()), (1, 0));
}

#[tokio::test]
async fn messages_are_published_as_others_when_too_many_are_aside() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.room = Room(1);
    queue.add((1..=7).map(|id| row(id, None)).collect(), now);
    assert_eq!(to_publish(&mut queue, false), [6, 7]);
    let mut queue = hanging();
    queue.room = Room(1);
    queue.add(vec![row(1, Some("k")), row(2, Some("l")), row(3, None)], now);
    assert_eq!(to_publish(&mut queue, false), [2], "there is room for one key");
}

#[tokio::test]
async fn messages_that_go_on_wait_for_no_others() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.add(vec![row(1, None), row(2, None), row(3, None)], now);
    assert!(to_publish(&mut queue, false).is_empty());
    let first = next(&mut queue, true).unwrap();
    queue.confirmed(&first, now);
    let message = StagedMessage::new(Uuid::nil(), Outgoing::new("b", ""));
    queue.add(vec![row(4, None), OutboxRow { message, ..row(5, None) }], now);
    assert_eq!((first.id, to_publish(&mut queue, true)), (1, vec![2, 3, 5]));
}

#[tokio::test]
async fn messages_that_got_no_answer_are_read_again_when_their_destination_answers() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.add(vec![row(1, Some("k")), row(2, None)], now);
    assert!(to_publish(&mut queue, false).is_empty());
    let first = next(&mut queue, true).unwrap();
    queue.destinations.late(&first, now, now);
    queue.destinations.ended(&first, now);
    queue.set_aside(Entry { tries: 3, ..first }, now);
    let second = next(&mut queue, true).unwrap();
    assert!(second.id == 2 && confirm(&mut queue, &second));
    assert_eq!((queue.delayed(), queue.destinations.len(), queue.bytes()), (1, 0, 0));
    assert!(queue.wake(later() + Duration::from_secs(1), 10).is_empty() && queue.goes_on());
    assert_eq!(asks(&mut queue), (vec![], Some(1)));
    queue.covered(&BTreeMap::from([(0, Covered { from: 1, to: None })]));
    queue.add(rows(1..=1), now);
    let first = next(&mut queue, true).unwrap();
    assert_eq!((first.id, first.place, first.tries), (1, Place::Again, 3), "its next delay is as long as before");
}
