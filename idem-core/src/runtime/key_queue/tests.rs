use futures_util::{FutureExt, poll};

use super::*;
use crate::Key;
use crate::store::HandlerId;

fn has_its_turn(place: &KeyTicket) -> bool {
    let woken = place.turn().now_or_never().is_some();
    assert_eq!(place.is_first(), woken);
    woken
}

/// Waits for the turn of a new place. The place is there before the wait, so that a dropped waiter leaves its queue as well.
async fn enter(queue: &KeyQueue, key: impl Hash) -> KeyTicket {
    let place = queue.enqueue(key);
    place.turn().await;
    place
}

#[test]
fn a_queue_moves_in_the_order_of_its_places() {
    let queue = KeyQueue::default();
    let (first, second, third) = (queue.enqueue(1), queue.enqueue(1), queue.enqueue(1));
    let other = queue.enqueue(2);
    assert!(has_its_turn(&first) && has_its_turn(&other));
    assert!(!has_its_turn(&second) && !has_its_turn(&third));
    drop(first);
    assert!(has_its_turn(&second) && !has_its_turn(&third));
    drop(second);
    assert!(has_its_turn(&third));
}

#[test]
fn leaving_the_middle_of_a_queue_lets_nobody_pass() {
    let queue = KeyQueue::default();
    let (first, second, third) = (queue.enqueue(1), queue.enqueue(1), queue.enqueue(1));
    drop(second);
    assert!(has_its_turn(&first) && !has_its_turn(&third));
    drop(first);
    assert!(has_its_turn(&third));
    drop(third);
    assert!(queue.0.queues.lock().is_empty(), "nothing is left behind");
}

#[tokio::test]
async fn a_waiter_is_woken() {
    let queue = KeyQueue::default();
    let (first, second) = (queue.enqueue(1), queue.enqueue(1));
    let waiter = tokio::spawn(async move { second.turn().await });
    tokio::task::yield_now().await;
    drop(first);
    tokio::time::timeout(std::time::Duration::from_secs(30), waiter).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_second_delivery_of_a_key_waits_and_leaves_nothing_behind() {
    let queue = KeyQueue::default();
    let key = Key::of("a").unwrap();
    let first = enter(&queue, (HandlerId(1), &key)).await;
    let _other = enter(&queue, (HandlerId(2), &key)).await;

    let mut second = Box::pin(enter(&queue, (HandlerId(1), &key)));
    assert!(poll!(second.as_mut()).is_pending());
    drop(first);
    drop(second.await);
    assert_eq!(queue.0.queues.lock().len(), 1, "only the other handler's key is there");
}

#[tokio::test]
async fn a_waiter_that_is_dropped_leaves_nothing_behind() {
    let queue = KeyQueue::default();
    let first = enter(&queue, "a").await;
    let mut second = Box::pin(enter(&queue, "a"));
    assert!(poll!(second.as_mut()).is_pending());
    drop(second);
    drop(first);
    assert!(queue.0.queues.lock().is_empty());
}

#[tokio::test]
async fn a_key_that_was_handed_to_a_dropped_waiter_goes_on_to_the_next() {
    let queue = KeyQueue::default();
    let first = enter(&queue, "a").await;
    let (mut second, mut third) = (Box::pin(enter(&queue, "a")), Box::pin(enter(&queue, "a")));
    assert!(poll!(second.as_mut()).is_pending());
    assert!(poll!(third.as_mut()).is_pending());
    drop(first);
    assert!(!queue.enqueue("a").is_first(), "the key belongs to the second");
    assert!(poll!(third.as_mut()).is_pending());
    drop(second);
    drop(third.await);
    assert!(queue.0.queues.lock().is_empty());
}

#[test]
fn a_copy_that_waited_keeps_its_place_before_the_copies_behind_it() {
    let (queue, mut copy) = (KeyQueue::default(), KeyTickets::default());
    let running = queue.enqueue("a");
    assert!(!copy.take(&queue, ["a"]));
    let behind = queue.enqueue("a");
    drop(running);
    assert!(copy.turn().now_or_never().is_some());

    // It starts over, and does not queue again behind the other copy.
    assert!(copy.take(&queue, ["a"]) && !behind.is_first());
    copy.clear();
    assert!(behind.is_first());
}

#[test]
fn a_copy_for_several_handlers_keeps_the_places_before_the_one_it_waits_for() {
    let (queue, mut copy) = (KeyQueue::default(), KeyTickets::default());
    let running = queue.enqueue("b");
    assert!(!copy.take(&queue, ["a", "b", "c"]));
    let behind = queue.enqueue("a");
    drop(running);
    assert!(copy.turn().now_or_never().is_some() && copy.take(&queue, ["a", "b", "c"]));
    assert!(!behind.is_first() && !queue.enqueue("c").is_first());
}

#[test]
fn a_delivery_whose_key_differs_from_one_decoding_to_the_next_waits_for_one_key_only() {
    let (queue, mut one, mut other) = (KeyQueue::default(), KeyTickets::default(), KeyTickets::default());
    assert!(one.take(&queue, ["a"]) && other.take(&queue, ["b"]));
    assert!(!one.take(&queue, ["b"]));
    assert!(other.take(&queue, ["a"]), "they would wait for each other without end");
}
