//! Tests of the queue.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::super::level::Covered;
use super::super::room::MANY;
use super::*;
use crate::Outgoing;
use crate::outbox::StagedMessage;

/// A row of the outbox.
pub(in crate::relay) fn row(id: i64, key: Option<&str>) -> OutboxRow {
    let message = Outgoing::new("a", "");
    let message = match key {
        Some(key) => message.key(key),
        None => message,
    };
    let message = StagedMessage::new(Uuid::nil(), message);
    OutboxRow { id, lane: 0, message, age: Duration::ZERO, due: Duration::ZERO }
}

/// Reads the lane to its end.
fn read(queue: &mut Queue, rows: Vec<OutboxRow>, now: Instant) -> usize {
    queue.ask(false, false);
    queue.covered(&BTreeMap::from([(0, Covered { from: 1, to: None })]));
    queue.add(rows, now)
}

/// The keys that the next read leaves out, and from where on it is to read for others.
fn asks(queue: &mut Queue) -> (Vec<Key>, Option<i64>) {
    let asks = queue.ask(false, false);
    (asks.keys, asks.behind.get(&0).map(|look| look.floor))
}

fn ids(queue: &mut Queue) -> Vec<i64> {
    std::iter::from_fn(|| queue.next(true)).map(|entry| entry.id).collect()
}

#[tokio::test]
async fn of_each_key_one_message_is_ready_at_a_time() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let rows = vec![row(1, Some("k")), row(2, Some("k")), row(3, None), row(4, None), row(5, Some("l"))];
    assert_eq!(queue.add(rows.clone(), now), 5);
    assert_eq!(queue.add(rows, now), 0, "all are known");
    let first = queue.next(true).unwrap();
    assert_eq!((first.id, ids(&mut queue)), (1, vec![3, 4, 5]));
    queue.advance(&first);
    let second = queue.next(true).unwrap();
    assert_eq!(second.id, 2);
    queue.advance(&second);
    assert!(queue.keys.keys().all(|key| *key == Key::of("l").unwrap()), "nothing is kept of a key that is done");
}

#[tokio::test]
async fn a_delayed_message_keeps_those_behind_it() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.add(vec![row(1, Some("k")), row(2, Some("k")), row(3, None)], now);
    let first = queue.next(true).unwrap();
    queue.hold(&first);
    queue.delay(&first, now, Duration::from_secs(1));
    assert_eq!(asks(&mut queue), (vec![Key::of("k").unwrap()], None));
    assert_eq!(queue.add(vec![row(2, Some("k")), row(4, Some("k"))], now), 0, "their key is left out");
    assert_eq!(ids(&mut queue), [3]);
    queue.wake(now, 1);
    assert_eq!(asks(&mut queue).1, None);
    queue.wake(now + Duration::from_secs(1), 1);
    assert_eq!(asks(&mut queue), (vec![], Some(1)), "it and those behind it are read again");
    assert_eq!(read(&mut queue, vec![row(1, Some("k")), row(2, Some("k")), row(4, Some("k"))], now), 3);
    let first = queue.next(true).unwrap();
    assert_eq!((first.id, queue.next(true).is_none()), (1, true));
    queue.advance(&first);
    assert_eq!(ids(&mut queue), [2]);
}

#[tokio::test]
async fn a_message_in_its_delay_is_not_overtaken_when_one_in_front_of_it_is_published() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let delayed = OutboxRow { due: Duration::from_secs(1), ..row(2, Some("k")) };
    queue.add(vec![row(1, Some("k")), delayed, row(3, Some("k"))], now);
    let first = queue.next(true).unwrap();
    assert_eq!(first.id, 1);
    queue.advance(&first);
    queue.add(vec![row(3, Some("k"))], now);
    assert!(queue.next(true).is_none(), "3 overtakes 2");
}

#[tokio::test]
async fn a_message_that_comes_late_goes_in_front_of_one_in_its_delay() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.add(vec![row(2, Some("k")), row(3, Some("k"))], now);
    let second = queue.next(true).unwrap();
    queue.delay_unanswered(&second, now + Duration::from_secs(1));
    queue.add(vec![row(1, Some("k"))], now);
    let first = queue.next(true).unwrap();
    assert_eq!(first.id, 1);
    queue.delay_unanswered(&first, now + Duration::from_secs(2));
    queue.wake(now + Duration::from_secs(1), 1);
    assert_eq!(asks(&mut queue).1, None, "2 is behind 1");
    queue.wake(now + Duration::from_secs(2), 1);
    assert_eq!(asks(&mut queue).1, Some(1));
    assert_eq!(read(&mut queue, vec![row(1, Some("k")), row(2, Some("k"))], now), 2);
    assert_eq!(ids(&mut queue), [1]);
}

#[tokio::test]
async fn a_message_that_comes_late_goes_in_front_of_those_that_wait() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.add(vec![row(2, Some("k")), row(3, Some("k"))], now);
    let second = queue.next(true).unwrap();
    queue.add(vec![row(1, Some("k"))], now);
    queue.advance(&second);
    assert_eq!(ids(&mut queue), [1]);
}

#[tokio::test]
async fn a_message_that_was_read_again_with_one_in_front_of_it_is_known() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.add(vec![row(2, Some("k"))], now);
    let second = queue.next(true).unwrap();
    queue.hold(&second);
    queue.add(vec![row(1, Some("k"))], now);
    let first = queue.next(true).unwrap();
    queue.delay_unanswered(&first, now);
    // Its refusal is recorded only now.
    queue.delay(&second, now, Duration::from_secs(1));
    queue.wake(now, 1);
    read(&mut queue, vec![row(1, Some("k")), row(2, Some("k"))], now);
    queue.wake(now + Duration::from_secs(1), 1);
    assert_eq!(queue.known.len(), 2);
}

#[tokio::test]
async fn of_a_delayed_message_only_the_id_is_kept() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let large = |id| {
        let message = StagedMessage::new(Uuid::nil(), Outgoing::new("a", vec![0; 1000]));
        OutboxRow { message, ..row(id, None) }
    };
    queue.add(vec![large(1), large(2)], now);
    let first = queue.next(true).unwrap();
    queue.delay(&first, now, Duration::from_secs(1));
    assert_eq!((queue.bytes(), queue.len(), queue.delayed()), (1000, 1, 1));
    assert_eq!(queue.add(vec![large(1)], now), 0, "it is not read again before its time");
}

#[tokio::test]
async fn headers_count_as_the_payload_does() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let message = Outgoing::new("a", "12345").header("tenant", vec![0; 1000]);
    queue.add(vec![OutboxRow { message: StagedMessage::new(Uuid::nil(), message), ..row(1, None) }], now);
    let first = queue.next(true).unwrap();
    assert_eq!((queue.bytes(), first.size()), (1011, 1011));
}

#[tokio::test]
async fn a_message_without_an_answer_stands_behind_others() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.add(vec![row(1, None)], now);
    let first = queue.next(true).unwrap();
    queue.delay_unanswered(&first, now);
    assert!(queue.wake(now, 0).is_empty() && queue.next_due(0).is_none(), "there is no place for it");
    assert_eq!(queue.wake(now, 1), [(0, 1)]);
    queue.add(vec![row(1, None), row(2, None)], now);
    assert_eq!((queue.next(false).unwrap().id, queue.next(false).is_none()), (2, true));
    assert_eq!(queue.next(true).unwrap().tries, 1);
}

#[tokio::test]
async fn a_lane_that_is_lost_is_forgotten() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.add(vec![row(1, Some("k")), row(2, Some("k")), row(3, None)], now);
    queue.drop_lanes(&BTreeSet::from([0]));
    assert!(queue.next(true).is_none() && queue.keys.is_empty() && queue.known.len() == 0);
}

#[tokio::test]
async fn nothing_is_kept_of_a_message_whose_lane_is_lost_before_its_next_attempt() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.add(vec![row(1, None)], now);
    let first = queue.next(true).unwrap();
    queue.delay_unanswered(&first, now);
    queue.wake(now, 1);
    queue.add(vec![row(1, None)], now);
    queue.drop_lanes(&BTreeSet::from([0]));
    assert_eq!(queue.delays.tries(1), 0);
}

#[tokio::test]
async fn of_a_key_with_many_messages_some_are_kept_and_leave_room_to_others() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let most = i64::try_from(MANY).unwrap() + 1;
    let rows = |ids: std::ops::RangeInclusive<i64>| ids.map(|id| row(id, Some("k"))).collect::<Vec<_>>();
    queue.add(rows(1..=3 * most), now);
    assert_eq!((queue.len(), queue.firsts()), (MANY + 1, 1));
    assert_eq!(asks(&mut queue), (vec![Key::of("k").unwrap()], None));
    assert_eq!(queue.add(rows(1..=3 * most), now), 0, "they are behind one that is not kept");
    let mut ids = 1..;
    while !queue.goes_on() {
        let first = queue.next(true).unwrap();
        assert_eq!(Some(first.id), ids.next());
        queue.advance(&first);
        queue.forget([first.id]);
    }
    assert_eq!(asks(&mut queue), (vec![], Some(most + 1)), "half of them are left");
    read(&mut queue, rows(most + 1..=3 * most), now);
    let first = queue.next(true).unwrap();
    assert_eq!((Some(first.id), queue.len(), queue.firsts()), (ids.next(), MANY + 1, 1));
    queue.hold(&first);
    assert_eq!((queue.len(), queue.firsts(), asks(&mut queue).1), (1, 1, None));
    queue.give_up(&first);
    assert_eq!(asks(&mut queue).1, Some(first.id), "all is read again behind it");
}

#[tokio::test]
async fn of_a_key_with_large_messages_some_are_kept_and_leave_room_to_others() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let large = |id| {
        let message = StagedMessage::new(Uuid::nil(), Outgoing::new("a", vec![0; 1024 * 1024]).key("k"));
        OutboxRow { message, ..row(id, None) }
    };
    queue.add((1..=40).map(large).collect(), now);
    assert_eq!((queue.len(), queue.bytes(), asks(&mut queue).0.len()), (32, 32 * 1024 * 1024, 1));
    // Of the 31 that wait behind the first one, 15 are left.
    for number in 1..=16 {
        assert!(!queue.goes_on(), "{number}");
        let first = queue.next(true).unwrap();
        queue.advance(&first);
        queue.forget([first.id]);
    }
    assert_eq!((queue.goes_on(), asks(&mut queue).1), (true, Some(33)));
}

#[tokio::test]
async fn what_is_not_kept_in_front_of_a_message_that_fails_is_read_again() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let many = i64::try_from(MANY).unwrap();
    queue.add(vec![row(many + 51, Some("k"))], now);
    let early = queue.next(true).unwrap();
    // A transaction commits late.
    queue.add((1..=many + 50).map(|id| row(id, Some("k"))).collect(), now);
    queue.delay_unanswered(&early, now);
    for id in 1..=many {
        let first = queue.next(true).unwrap();
        assert_eq!((first.id, asks(&mut queue).1), (id, None));
        queue.advance(&first);
        queue.forget([id]);
    }
    queue.wake(now, 1);
    assert_eq!(asks(&mut queue), (vec![], Some(many + 1)));
}
