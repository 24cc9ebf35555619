//! Tests of messages that are set aside.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::super::level::Covered;
use super::super::room::{MANY, Room};
use super::*;
use crate::outbox::StagedMessage;
use crate::store::OutboxRow;
use crate::{Key, Outgoing};

fn row(id: i64, key: Option<&str>) -> OutboxRow {
    let message = Outgoing::new("a", "");
    let message = match key {
        Some(key) => message.key(key),
        None => message,
    };
    let message = StagedMessage::new(Uuid::nil(), message);
    OutboxRow { id, lane: 0, message, age: Duration::ZERO, due: Duration::ZERO }
}

/// Messages of a key.
fn rows(ids: std::ops::RangeInclusive<i64>) -> Vec<OutboxRow> {
    ids.map(|id| row(id, Some("k"))).collect()
}

/// The keys that the next read leaves out, and from where on it is to read for others.
fn asks(queue: &mut Queue) -> (Vec<Key>, Option<i64>) {
    let asks = queue.ask(false, false);
    (asks.keys, asks.behind.get(&0).map(|look| look.floor))
}

/// A queue whose destination hangs.
fn hanging() -> Queue {
    let mut queue = Queue::default();
    queue.add((1001..=1016).map(|id| row(id, None)).collect(), Instant::now());
    while let Some(entry) = queue.next(false) {
        queue.destinations.late(&entry);
        queue.leave(&entry);
    }
    queue
}

/// The messages that can be published; `aside` says whether there is a place for those that were set aside.
fn to_publish(queue: &mut Queue, aside: bool) -> Vec<i64> {
    std::iter::from_fn(|| queue.next_to_publish(true, aside)).map(|entry| entry.id).collect()
}

#[tokio::test]
async fn a_message_that_is_set_aside_keeps_those_behind_it() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.add([rows(1..=2), vec![row(3, None)]].concat(), now);
    assert!(to_publish(&mut queue, false).is_empty());
    assert_eq!((queue.len(), queue.firsts(), queue.destinations.len()), (0, 0, 2));
    assert_eq!(asks(&mut queue), (vec![Key::of("k").unwrap()], None));
    assert_eq!(queue.add(rows(2..=2), now), 0, "it is unread");
    let first = queue.next_to_publish(true, true).unwrap();
    assert_eq!((first.id, asks(&mut queue).1), (1, None), "it may get no answer for long");
    queue.destinations.ended(&first);
    queue.advance(&first);
    queue.forget([first.id]);
    assert!(queue.goes_on());
    let look = queue.ask(false, false).behind[&0];
    assert_eq!((look.floor, look.limit), (2, 1), "the destination hangs, and the next one may be for it");
    queue.covered(&BTreeMap::from([(0, Covered { from: 1, to: Some(2) })]));
    queue.add(rows(2..=2), now);
    let rest: Vec<Entry> = std::iter::from_fn(|| queue.next_to_publish(true, true)).collect();
    assert_eq!(rest.iter().map(|entry| entry.id).collect::<Vec<_>>(), [3, 2]);
    for entry in &rest {
        queue.destinations.ended(entry);
        queue.destinations.confirmed("a");
        queue.advance(entry);
        queue.forget([entry.id]);
    }
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
    let second = queue.next_to_publish(true, true).unwrap();
    queue.destinations.ended(&second);
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
    let first = queue.next_to_publish(true, true).unwrap();
    queue.drop_lanes(&BTreeSet::from([0]));
    assert!(queue.keys.is_empty() && queue.known.len() == 0 && to_publish(&mut queue, true).is_empty());
    queue.destinations.ended(&first);
    assert_eq!((first.id, queue.destinations.len()), (1, 0));
}

#[tokio::test]
async fn messages_are_published_as_others_when_too_many_are_aside() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.room = Room(1);
    queue.add((1..=7).map(|id| row(id, None)).collect(), now);
    assert_eq!(to_publish(&mut queue, false), [6, 7]);
}

#[tokio::test]
async fn messages_of_others_go_before_those_that_go_on() {
    let (mut queue, now) = (hanging(), Instant::now());
    queue.add(vec![row(1, None), row(2, None), row(3, None)], now);
    assert!(to_publish(&mut queue, false).is_empty());
    queue.destinations.confirmed("a");
    let message = StagedMessage::new(Uuid::nil(), Outgoing::new("b", ""));
    queue.add(vec![row(4, None), OutboxRow { message, ..row(5, None) }], now);
    assert_eq!(to_publish(&mut queue, false), [5, 1, 2]);
}
