use uuid::Uuid;

use super::*;
use crate::Outgoing;

fn row(id: i64, key: Option<&str>) -> OutboxRow {
    sized(id, key, 1)
}

fn sized(id: i64, key: Option<&str>, size: usize) -> OutboxRow {
    let message = Outgoing::new("orders", vec![b'x'; size]);
    let message = key.map_or(message.clone(), |key| message.key(key));
    let message = StagedMessage::new(Uuid::from_u128(id as u128), message);
    OutboxRow { id, message, age: Duration::ZERO, due: Duration::ZERO }
}

fn add(queue: &mut Queue, ids: impl IntoIterator<Item = i64>, key: &str) -> Vec<i64> {
    ids.into_iter().filter_map(|id| queue.add(row(id, Some(key)), Instant::now())).collect()
}

fn advance(queue: &mut Queue, ids: impl IntoIterator<Item = i64>) {
    for id in ids {
        queue.advance(id);
    }
}

/// Reads for keys, and returns from where on.
fn keys(queue: &mut Queue) -> Option<(Vec<String>, i64)> {
    let (keys, from, _) = queue.take_keys(|passed| passed)?;
    Some((keys.iter().map(ToString::to_string).collect(), from))
}

fn key(text: &str) -> Vec<Key> {
    vec![Key::of(text).unwrap()]
}

#[tokio::test]
async fn one_message_of_a_key_goes_at_a_time_and_others_pass() {
    let mut queue = Queue::new(1000);
    assert_eq!(add(&mut queue, [1, 3], "k"), [1]);
    assert_eq!(add(&mut queue, [2], "l"), [2]);
    assert_eq!([queue.add(row(4, None), Instant::now()), queue.add(row(5, None), Instant::now())], [Some(4), Some(5)]);
    assert_eq!((queue.advance(4), queue.advance(1)), (None, Some(3)));
    assert_eq!((queue.advance(3), queue.known(0, 9).len()), (None, 5), "until they are deleted");
    assert_eq!(add(&mut queue, [6], "k"), [6]);
}

#[tokio::test]
async fn of_a_key_with_many_messages_some_are_kept_and_the_rest_is_read_when_half_is_gone() {
    let mut queue = Queue::new(1000);
    assert_eq!(add(&mut queue, 1..=300, "k"), [1]);
    assert_eq!((queue.known(0, 999).len(), queue.left_out().len()), (MANY + 1, 1));
    for id in 1..=50 {
        assert_eq!((keys(&mut queue), queue.advance(id)), (None, Some(id + 1)), "{id}");
    }
    assert_eq!(keys(&mut queue), Some((vec!["k".to_owned()], 102)));
    queue.covered(&key("k"), Some(152));
    assert!(add(&mut queue, 102..=151, "k").is_empty() && queue.settle(&key("k")).is_empty());
    assert_eq!(queue.left_out().len(), 1, "there may be more");
    advance(&mut queue, 51..=101);
    assert_eq!(keys(&mut queue), Some((vec!["k".to_owned()], 152)));
    queue.covered(&key("k"), None);
    queue.settle(&key("k"));
    assert!(queue.left_out().is_empty());
    advance(&mut queue, 102..=151);
    assert!(queue.keys.is_empty(), "a key without messages is forgotten");
}

#[tokio::test]
async fn what_waits_for_its_next_attempt_keeps_its_key_and_only_its_id() {
    let (mut queue, now) = (Queue::new(1000), Instant::now());
    add(&mut queue, 1..=3, "k");
    queue.park_refused(1, now, Duration::from_secs(1));
    assert_eq!(queue.known(0, 9), [1]);
    assert_eq!((queue.bytes, queue.parked, queue.kept()), (0, 1, 0));
    assert_eq!(keys(&mut queue), None, "it waits for its head");
    assert!(add(&mut queue, [4], "k").is_empty());
    queue.wake_due(now, 0);
    assert!(queue.take_due(9).is_empty());
    queue.wake_due(now + Duration::from_secs(1), 0);
    assert_eq!(queue.take_due(9), [1]);
    assert_eq!(queue.add(row(1, Some("k")), now), Some(1));
    assert_eq!((queue.advance(1), keys(&mut queue)), (None, Some((vec!["k".to_owned()], 2))), "in front of 4");
}

#[tokio::test]
async fn a_read_that_runs_brings_nothing_behind_what_was_forgotten_since() {
    let (mut queue, now) = (Queue::new(1000), Instant::now());
    add(&mut queue, 1..=150, "k");
    advance(&mut queue, 1..=60);
    assert_eq!(keys(&mut queue), Some((vec!["k".to_owned()], 102)));
    // 61 is refused while the read runs, and those behind it are forgotten.
    queue.park_refused(61, now, Duration::ZERO);
    queue.covered(&key("k"), None);
    assert!(add(&mut queue, 102..=150, "k").is_empty(), "62 is in front of them");
    queue.settle(&key("k"));
    queue.forget(61);
    assert_eq!(keys(&mut queue), Some((vec!["k".to_owned()], 62)));
}

#[tokio::test]
async fn a_message_that_is_committed_late_is_read_with_those_that_are_not_kept() {
    let mut queue = Queue::new(1000);
    add(&mut queue, 10..=200, "k");
    assert!(add(&mut queue, [5], "k").is_empty());
    assert_eq!((queue.advance(10), queue.known(0, 999).len()), (Some(11), MANY + 1), "it did not wait for these");
    queue.left_out_from(&key("k"), 3);
    advance(&mut queue, 11..70);
    assert_eq!(keys(&mut queue), Some((vec!["k".to_owned()], 3)));
}

#[tokio::test]
async fn the_more_is_here_the_fewer_messages_of_a_key_are_kept() {
    let mut queue = Queue::new(200);
    add(&mut queue, 1..=200, "k");
    add(&mut queue, 201..=400, "l");
    assert_eq!(queue.keys[&key("l")[0]].waiting.len(), FEW);
    let mut queue = Queue::new(200);
    for id in 0..80 {
        queue.add(sized(id, Some("large"), 1024 * 1024), Instant::now());
    }
    assert!(queue.keys[&key("large")[0]].waiting.len() <= 33, "up to half of the bytes, and then no more");
    assert!(!queue.is_full(1000));
}

#[tokio::test]
async fn messages_without_an_answer_are_woken_as_far_as_there_are_slots() {
    let (mut queue, now) = (Queue::new(1000), Instant::now());
    for id in 1..=5 {
        queue.add(row(id, None), now);
        assert_eq!(queue.count_try(id, true), 1);
        queue.park_unanswered(id, now);
    }
    queue.wake_due(now, 2);
    assert_eq!(queue.take_due(9), [1, 2]);
    queue.add(row(1, None), now);
    queue.ready(1, false);
    assert_eq!((queue.next(false), queue.next(true)), (None, Some((1, true))), "it was tried before");
}

#[tokio::test]
async fn keys_are_read_for_in_their_turn_and_together_if_nothing_is_in_front_of_the_first() {
    let mut queue = Queue::new(10);
    for (first, name) in [(100, "b"), (1, "a"), (200, "c")] {
        add(&mut queue, first..first + 20, name);
        let behind: Vec<i64> = queue.keys[&key(name)[0]].waiting.iter().copied().collect();
        advance(&mut queue, std::iter::once(first).chain(behind));
    }
    let (both, from) = keys(&mut queue).unwrap();
    assert!(both == ["b", "c"] && from > 100, "{both:?} {from}");
    assert_eq!(keys(&mut queue).unwrap().0, ["a"]);
}

#[tokio::test]
async fn a_key_that_a_read_has_not_reached_is_not_searched_for_in_the_backlog_in_front_of_it() {
    let mut queue = Queue::new(1000);
    add(&mut queue, 1..=300, "a");
    add(&mut queue, 1001..=1300, "b");
    advance(&mut queue, (1..=51).chain(1001..=1051));
    let both = || [key("a"), key("b")].concat();
    assert_eq!(keys(&mut queue), Some((vec!["a".to_owned(), "b".to_owned()], 102)));
    advance(&mut queue, 1052..=1101);
    queue.covered(&both(), Some(202));
    add(&mut queue, 102..=201, "a");
    queue.settle(&both());
    assert_eq!(keys(&mut queue), Some((vec!["b".to_owned()], 1102)));
    // That read has failed.
    queue.covered(&key("b"), Some(1));
    queue.settle(&key("b"));
    assert_eq!(keys(&mut queue), Some((vec!["b".to_owned()], 1102)));
}

#[tokio::test]
async fn headers_count_as_the_payload_does() {
    let mut queue = Queue::new(10);
    let message = Outgoing::new("orders", "").header("a", vec![b'x'; 100]);
    let message = StagedMessage::new(Uuid::nil(), message);
    queue.add(OutboxRow { id: 1, message, age: Duration::ZERO, due: Duration::ZERO }, Instant::now());
    assert_eq!(queue.bytes, 101);
    queue.forget(1);
    assert_eq!(queue.bytes, 0);
}
