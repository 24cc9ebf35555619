//! DeliveryOrder keys that pass to another worker or connection.

use std::time::Duration;

use idem_conformance::soon;
use idem_conformance::store::World;

use super::key_order::{a_while, hurry, keyed, ordered, patient, runs, waits};
use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

/// A process ends within an ordering key, while a message runs and while its retry waits: the next process continues
/// there.
pub async fn a_crash_in_the_middle_keeps_the_order<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Hang, Act::Fail, Act::Ok]));
    line.publish(Order::ok("b"));
    line.publish(Order::new("c", &[Act::Fail, Act::Ok]));
    line.publish(Order::ok("d"));
    let first = line.start_with(ordered());
    runs(&line, "a", 1).await;
    soon(line.queue.delivered(4)).await;
    first.crash().await;

    let second = line.start_with(patient());
    runs(&line, "a", 2).await;
    a_while().await;
    second.crash().await;
    assert_eq!(line.desk.log(), ["a", "a"]);

    let third = line.start_with(patient());
    hurry(&line).await;
    runs(&line, "c", 1).await;
    a_while().await;
    third.crash().await;

    let fourth = line.start_with(patient());
    hurry(&line).await;
    fourth.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log(), ["a", "a", "a", "b", "c", "c", "d"]);
    for id in ["a", "b", "c", "d"] {
        assert_eq!(line.effects(id).await, 1, "{id}");
    }
}

/// It releases what waits for its turn or for its row, and loses nothing.
pub async fn a_drain_releases_a_key_that_waits<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Fail, Act::Ok]));
    line.publish(Order::ok("b"));
    let worker = line.start_with(patient());
    line.outcomes(1).await;
    soon(line.queue.delivered(2)).await;
    worker.stop().await;
    let counts = line.queue.counts();
    assert_eq!((counts.acks, counts.ready, counts.unsettled), (0, 2, 0));
    assert_eq!((line.desk.log(), line.scheduled().await.len()), (vec!["a".to_owned()], 1));
    hurry(&line).await;
    line.run_with(ordered(), 3).await;
    assert_eq!(line.desk.log(), ["a", "a", "b"]);
}

/// While a worker finishes a running message, no other worker begins the next one of its ordering key.
pub async fn a_drain_finishes_what_runs_before_its_key_goes_on<W: World>(world: W) {
    // Where one transaction writes at a time, nothing could begin beside it anyway.
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    line.publish(Order::new("a", &[Act::Wait]));
    line.publish(Order::ok("b"));
    // Fills the first worker's prefetch: it may have 16 unsettled deliveries per lane.
    for n in 2..32 {
        line.publish(Order::ok(&format!("f{n}")));
    }
    let first = line.start_with(Settings { concurrency: 2, ..ordered() });
    waits(&line, 1).await;
    soon(line.queue.delivered(32)).await;
    // The first worker has no room for `x`, so its delivery shows that the second one is running.
    let second = line.start_with(ordered());
    line.publish(keyed(2, Order::ok("x")));
    soon(line.queue.delivered(33)).await;
    let ended = first.shut_down();
    line.publish(Order::ok("c"));
    a_while().await;
    let log = line.desk.log();
    assert!(!log.contains(&"b".to_owned()) && !log.contains(&"c".to_owned()), "{log:?}");
    line.desk.go.send_replace(true);
    soon(ended).await.unwrap().unwrap();
    second.stop_once_idle(&line.queue).await;
    let log = line.desk.log().into_iter().filter(|id| id != "x" && !id.starts_with('f'));
    assert_eq!(log.collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 1));
}

/// A handler that does not end is rolled back, and its ordering key continues elsewhere from there.
pub async fn the_end_of_the_shutdown_timeout_leaves_a_key_to_the_next<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Hang, Act::Ok]));
    line.publish(Order::ok("b"));
    let worker = line.start_with(Settings { drain: Duration::from_millis(50), ..ordered() });
    runs(&line, "a", 1).await;
    worker.stop().await;
    assert_eq!(line.queue.counts().unsettled, 0);
    line.run_with(ordered(), 3).await;
    assert_eq!(line.desk.log(), ["a", "a", "b"]);
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 1));
}

/// A connection is lost while messages of an ordering key wait: redeliveries queue up in order, and nothing runs twice.
pub async fn a_lost_broker_keeps_the_order<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Wait]));
    line.publish(Order::ok("b"));
    line.publish(Order::new("c", &[Act::Fail, Act::Ok]));
    line.publish(Order::ok("d"));
    let worker = line.start_with(ordered());
    waits(&line, 1).await;
    soon(line.queue.delivered(4)).await;
    line.broker.disconnect();
    soon(line.queue.delivered(8)).await;
    line.desk.go.send_replace(true);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log(), ["a", "b", "c", "c", "d"]);
}

/// Deliveries that are no longer ours leave the queue of their ordering key, so that the redelivered ones find room.
pub async fn a_lost_delivery_frees_its_ordering_key<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(keyed(1, Order::new("a", &[Act::Fail, Act::Ok])));
    line.publish(keyed(1, Order::ok("b")));
    let worker = line.start_with(Settings { concurrency: 3, ..patient() });
    line.outcomes(1).await;
    soon(line.queue.delivered(2)).await;
    line.broker.disconnect();
    line.publish(keyed(2, Order::ok("x")));
    line.outcomes(2).await;
    assert_eq!(line.desk.log(), ["a", "x"]);
    hurry(&line).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log(), ["a", "x", "a", "b"]);
}
