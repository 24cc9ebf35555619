//! Tests of reads, with the queue and the floors.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::*;
use crate::Outgoing;
use crate::outbox::StagedMessage;
use crate::store::OutboxRow;

mod model;
mod trials;
mod visits;

fn row(id: i64, key: &'static str) -> OutboxRow {
    let message = StagedMessage::new(Uuid::nil(), Outgoing::new("a", "").key(key));
    OutboxRow { id, lane: 0, message, age: Duration::ZERO, due: Duration::ZERO }
}

fn rows(ids: std::ops::RangeInclusive<i64>, key: &'static str) -> Vec<OutboxRow> {
    ids.map(|id| row(id, key)).collect()
}

/// Publishes messages until more of their key can be read.
fn publish(queue: &mut Queue) {
    while !queue.goes_on() {
        let first = queue.next(true).unwrap();
        queue.advance(&first);
        queue.forget([first.id]);
    }
}

#[tokio::test]
async fn reads_for_keys_and_for_all_others_take_turns() {
    let mut queue = Queue::default();
    queue.add(rows(1..=300, "k"), Instant::now());
    publish(&mut queue);
    let look = queue.ask(false, false).behind[&0];
    assert_eq!((look.floor, look.limit), (102, 50), "no more than are kept");
    queue.covered(&BTreeMap::from([(0, Covered { from: 1, to: Some(111) })]));
    queue.add(rows(102..=111, "k"), Instant::now());
    publish(&mut queue);
    let asks = queue.ask(false, false);
    assert_eq!((asks.keys.len(), asks.behind.len()), (1, 0), "it is the turn of the others");
    assert_eq!(queue.ask(false, true).behind[&0].floor, 112, "they have nothing at present");
    queue.ask(false, false);
    queue.covered(&BTreeMap::from([(0, Covered { from: 101, to: None })]));
    assert_eq!(queue.ask(false, false).behind[&0].floor, 101, "it was left out from there on");
}

/// Both keys have more messages than are kept, and those of the first one are in front.
#[tokio::test]
async fn a_key_of_which_a_read_has_brought_nothing_goes_first() {
    let mut queue = Queue::default();
    queue.add([rows(1..=300, "a"), rows(1001..=1300, "b")].concat(), Instant::now());
    // Half of those that are kept of each.
    let publish = |queue: &mut Queue| {
        for _ in 0..50 {
            for first in [queue.next(true).unwrap(), queue.next(true).unwrap()] {
                queue.advance(&first);
                queue.forget([first.id]);
            }
        }
    };
    publish(&mut queue);
    let asks = queue.ask(false, false);
    assert_eq!((asks.keys.len(), asks.behind[&0].floor, asks.behind[&0].limit), (0, 102, 100));
    queue.covered(&BTreeMap::from([(0, Covered { from: 1, to: Some(201) })]));
    queue.add(rows(102..=201, "a"), Instant::now());
    publish(&mut queue);
    assert_eq!(queue.ask(false, false).keys.len(), 2, "it is the turn of the others");
    queue.covered(&BTreeMap::from([(0, Covered { from: 2000, to: None })]));
    let asks = queue.ask(false, false);
    assert_eq!((asks.keys, asks.behind[&0].floor), (vec![Key::of("a").unwrap()], 1102));
    queue.covered(&BTreeMap::from([(0, Covered { from: 1101, to: Some(1111) })]));
    queue.add(rows(1102..=1111, "b"), Instant::now());
    queue.ask(false, false);
    queue.covered(&BTreeMap::from([(0, Covered { from: 2000, to: None })]));
    assert_eq!(queue.ask(false, false).behind[&0].floor, 152, "both again");
}

#[tokio::test]
async fn a_read_of_what_was_woken_leaves_out_keys_that_go_on_anyway() {
    let mut queue = Queue::default();
    queue.add([rows(1..=1, "woken"), rows(2..=300, "many")].concat(), Instant::now());
    let first = queue.next(true).unwrap();
    queue.hold(&first);
    publish(&mut queue);
    queue.give_up(&first);
    let asks = queue.ask(true, false);
    assert_eq!((asks.keys, asks.behind[&0].floor), (vec![Key::of("many").unwrap()], 1));
    assert!(queue.ask(false, false).keys.is_empty());
}
