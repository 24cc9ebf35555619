use std::collections::BTreeSet;

use super::*;

/// When the next message may be published to a broker that is away.
fn until(broker: &Broker) -> Option<Instant> {
    broker.away.as_ref().map(|away| away.until)
}

fn later(now: Instant, seconds: u64) -> Instant {
    now + Duration::from_secs(seconds)
}

#[tokio::test]
async fn an_open_circuit_is_probed_with_one_message_at_a_time_and_a_confirm_closes_it() {
    let (mut circuits, now) = (Circuits::default(), Instant::now());
    assert!(circuits.fail("a", true, (now, now)) && !circuits.fail("a", true, (now, now)), "once");
    for id in 1..=3 {
        assert!(circuits.park("a", id, (false, u32::from(id == 1))));
    }
    assert!(circuits.probes(now, 4).is_empty(), "not before the delay");
    let due = later(now, 1);
    assert_eq!(circuits.probes(due, 4), [2], "one that was not tried");
    assert!(circuits.probes(due, 4).is_empty() && circuits.is_probe("a", 2));
    circuits.ended("a", 2);
    circuits.fail("a", true, (due, due));
    assert!(circuits.probes(due, 4).is_empty(), "the delay begins anew");
    assert_eq!(circuits.probes(later(due, 1), 4), [3]);
    let (fresh, tried) = circuits.confirm("a").unwrap();
    assert_eq!((fresh.into_iter().collect::<Vec<_>>(), tried.into_iter().collect::<Vec<_>>()), (vec![], vec![1]));
    assert!(!circuits.is_open("a") && circuits.left_out().is_empty() && circuits.confirm("a").is_none());
}

#[tokio::test]
async fn probes_of_destinations_without_an_answer_share_a_quarter_and_take_turns() {
    let (mut circuits, now) = (Circuits::default(), Instant::now());
    for (id, to) in [(1, "a"), (2, "b"), (3, "c")] {
        circuits.fail(to, true, (now, now));
        circuits.park(to, id, (true, 0));
    }
    circuits.fail("full", false, (now, now));
    circuits.park("full", 4, (true, 0));
    let mut due = later(now, 1);
    let mut probed = BTreeSet::new();
    for _ in 0..3 {
        let first = circuits.probes(due, 1);
        let slow: Vec<i64> = first.iter().copied().filter(|id| *id < 4).collect();
        assert_eq!(slow.len(), 1, "{first:?}");
        let to = ["a", "b", "c"][slow[0] as usize - 1];
        circuits.ended(to, slow[0]);
        circuits.fail(to, true, (due, due));
        circuits.park(to, slow[0], (true, 1));
        probed.insert(slow[0]);
        due += Duration::from_millis(1);
    }
    assert_eq!(probed.len(), 3, "each in its turn");
    assert!(circuits.is_probe("full", 4), "one that backs off takes no slot of these");
}

#[tokio::test]
async fn of_messages_without_a_key_few_ids_are_kept_and_the_rest_is_read() {
    let (mut circuits, now) = (Circuits::default(), Instant::now());
    circuits.fail("a", true, (now, now));
    let kept = (1..=200).filter(|id| circuits.park("a", *id, (false, 0))).count();
    assert_eq!(kept, KEPT);
    let due = later(now, 1);
    assert_eq!(circuits.begin_read(due, false), None, "some are here");
    assert!(circuits.confirm("a").is_some());
    assert_eq!(circuits.begin_read(due, true), None, "there is no room");
    assert_eq!(circuits.begin_read(due, false), Some(("a".to_owned(), 101)));
    circuits.end_read("a", true, Some(151));
    assert_eq!(circuits.begin_read(due, false), Some(("a".to_owned(), 151)));
    circuits.end_read("a", true, None);
    assert!(circuits.left_out().is_empty() && circuits.begin_read(due, false).is_none());
}

#[tokio::test]
async fn what_is_left_out_while_a_destination_is_read_is_read_again() {
    let (mut circuits, now) = (Circuits::default(), Instant::now());
    circuits.fail("a", true, (now, now));
    circuits.left_out_from(&["a".to_owned()], 7);
    let due = later(now, 1);
    assert!(circuits.probes(due, 1).is_empty(), "it has to be read first");
    assert_eq!(circuits.begin_read(due, true), Some(("a".to_owned(), 7)));
    circuits.left_out_from(&["a".to_owned()], 5);
    circuits.end_read("a", true, None);
    assert_eq!(circuits.begin_read(due, true), Some(("a".to_owned(), 5)));
    assert!(circuits.probes(due, 1).is_empty(), "its read has not ended");
    circuits.end_read("a", true, None);
    assert!(circuits.probes(due, 1).is_empty(), "no message waits");
    assert!(!circuits.is_open("a") && circuits.left_out().is_empty());
}

#[tokio::test]
async fn what_was_left_out_of_a_destination_waits_for_no_backlog_of_another_one() {
    let (now, mut circuits) = (Instant::now(), Circuits::default());
    circuits.left_out_from(&["a".to_owned()], 1);
    circuits.left_out_from(&["b".to_owned()], 1000);
    for (second, (to, passed)) in (0..).zip([("a", 1), ("b", 1000), ("a", 101), ("b", 1100)]) {
        assert_eq!(circuits.begin_read(later(now, second), false), Some((to.to_owned(), passed)));
        assert!(circuits.probes(now, 1).is_empty());
        circuits.end_read(to, true, Some(passed + 100));
    }
}

#[tokio::test]
async fn what_a_read_has_left_out_is_read_although_its_destination_has_answered_meanwhile() {
    let (mut circuits, now) = (Circuits::default(), Instant::now());
    circuits.fail("a", true, (now, now));
    let left_out = circuits.left_out();
    assert!(circuits.confirm("a").is_some());
    assert!(circuits.probes(now, 1).is_empty(), "the closed circuit is forgotten");
    circuits.left_out_from(&left_out, 7);
    assert_eq!(circuits.begin_read(now, false), Some(("a".to_owned(), 7)));
    circuits.end_read("a", true, None);
    assert!(circuits.left_out().is_empty());
}

#[tokio::test]
async fn a_broker_that_is_away_is_probed_after_growing_delays() {
    let now = Instant::now();
    let mut broker = Broker::default();
    assert_eq!(broker.slots(500, now), 500);
    assert_eq!(broker.fail(false, (now, now)), (true, true));
    assert_eq!(broker.slots(500, now), 0);
    let next = until(&broker).unwrap();
    assert_eq!((broker.slots(500, next), broker.slots(1, next)), (16, 1));
    assert_eq!(broker.fail(false, (now, next)), (true, false), "it was published before");
    assert_eq!(until(&broker), Some(next));
    assert_eq!(broker.fail(false, (next, next)), (true, false));
    assert!(until(&broker).unwrap() > next);
    assert!(broker.confirm(next) && !broker.confirm(next));
    assert_eq!(broker.slots(500, next), 500);
    assert_eq!(broker.fail(true, (now, later(now, 10))), (false, false), "another one was confirmed since");
    assert_eq!(
        broker.fail(false, (later(next, 0), later(next, 0))),
        (false, false),
        "another one was confirmed just before"
    );
    assert_eq!(broker.fail(false, (later(next, 2), later(next, 2))), (true, true));
}

#[tokio::test]
async fn after_a_timeout_others_are_tried_at_once() {
    let (now, mut broker) = (Instant::now(), Broker::default());
    let late = later(now, 10);
    assert_eq!((broker.fail(true, (now, late)), broker.slots(500, late)), ((true, true), 16));
    assert_eq!(broker.fail(true, (late, later(late, 10))), (true, false));
    assert_eq!(until(&broker), Some(late));
}

#[tokio::test]
async fn another_relay_is_given_a_try_when_the_broker_has_been_away_for_half_a_minute() {
    let (now, mut broker, short) = (Instant::now(), Broker::default(), Duration::from_secs(10));
    assert!(!broker.is_lost(later(now, 60), short));
    broker.fail(false, (now, now));
    broker.fail(false, (later(now, 29), later(now, 29)));
    assert!(!broker.is_lost(later(now, 30), short) && broker.is_lost(later(now, 31), short), "since its first failure");
    assert!(!broker.is_lost(later(now, 31), 6 * short), "an answer may take a minute");
    broker.confirm(later(now, 31));
    assert!(!broker.is_lost(later(now, 60), short));
}

#[test]
fn a_message_that_never_gets_an_answer_is_tried_ever_more_seldom() {
    assert!(wait_unanswered(0) < Duration::from_secs(1) && wait_unanswered(20) > Duration::from_secs(60));
}
