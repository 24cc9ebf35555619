//! The shutdown of a worker, and the loss of its connections to the broker.

use std::time::Duration;

use idem_core::store::Row;

use idem_conformance::store::World;
use idem_conformance::{soon, until};

use super::line::{Line, sorted};
use super::long_outages::orphan_alone;
use super::orders::{Act, Order};
use super::settings::Settings;

/// Running messages finish, messages that have not begun are released, and nothing is lost.
pub async fn a_drain_finishes_what_runs_and_releases_the_rest<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("runs", &[Act::Wait]));
    for n in 0..4 {
        // Copies wait in memory for the one that runs.
        line.publish(Order::new("runs", &[Act::Wait]));
        line.publish(Order::ok(&n.to_string()));
    }
    let worker = line.start_with(Settings { concurrency: 2, ..Settings::default() });
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    let ended = worker.shut_down();
    line.desk.go.send_replace(true);
    soon(ended).await.unwrap().unwrap();
    let counts = line.queue.counts();
    assert_eq!((line.effects("runs").await, counts.unsettled), (1, 0));
    assert_eq!(counts.acks + counts.ready, 9, "what was not acked is back in the queue");

    line.run(9).await;
    assert_eq!((line.effects("runs").await, line.desk.runs("runs")), (1, 1));
    for n in 0..4 {
        assert_eq!(line.effects(&n.to_string()).await, 1);
    }
}

/// Another worker has it before the handler of this one ends.
pub async fn a_drain_releases_what_waits_for_a_lane_at_once<W: World>(world: W) {
    // Otherwise nothing waits for a lane.
    let Some(line) = Line::new_if(!world.inbox(), world).await else { return };
    line.publish(Order::new("runs", &[Act::Wait]));
    let worker = line.start_with(Settings { concurrency: 1, ..Settings::default() });
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.publish(Order::ok("waits"));
    soon(line.queue.delivered(2)).await;
    let ended = worker.shut_down();
    soon(line.queue.released(1)).await;
    assert_eq!((line.queue.counts().acks, line.desk.runs("waits")), (0, 0), "one handler still runs");
    line.desk.go.send_replace(true);
    soon(ended).await.unwrap().unwrap();
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!((line.effects("runs").await, line.effects("waits").await), (1, 1));
    assert_eq!((line.desk.runs("runs"), line.desk.runs("waits")), (1, 1));
}

/// It may have the process to itself for as long as its handler takes. Another worker has the messages before that.
pub async fn a_drain_beside_an_orphan_releases_what_waits<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = orphan_alone(&line, Settings { concurrency: 3, ..Settings::default() }).await;
    let waiting = ["a", "b", "c"];
    for (n, id) in waiting.iter().enumerate() {
        line.publish(Order::ok(id));
        soon(line.queue.delivered(n + 1)).await;
    }
    let ended = worker.shut_down();
    soon(line.queue.released(waiting.len())).await;
    line.desk.go.send_replace(true);
    soon(ended).await.unwrap().unwrap();
    // What comes again is stored first, which is an outcome unless every message is stored.
    let each = if line.world.inbox() { 1 } else { 2 };
    line.run(1 + each * waiting.len()).await;
    for id in ["orphan", "a", "b", "c"] {
        assert_eq!((line.effects(id).await, line.desk.runs(id)), (1, 1), "{id}");
    }
}

/// The messages of a failing batch run one at a time. Another worker has those that wait before the one that runs ends.
pub async fn a_drain_releases_what_waits_to_run_alone<W: World>(world: W) {
    let line = Line::new(world).await;
    let second = |id, act| Order::new(id, &[Act::Fail, act]);
    [second("a", Act::Wait), second("b", Act::Ok), Order::ok("c")].into_iter().for_each(|order| line.publish(order));
    let linger = Duration::from_millis(300);
    let worker = line.start_with(Settings { concurrency: 1, linger, ..Settings::default() });
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    let ended = worker.shut_down();
    soon(line.queue.released(2)).await;
    line.desk.go.send_replace(true);
    soon(ended).await.unwrap().unwrap();
    // The others are stored first, because they come again.
    line.run(1 + 2 * 2).await;
    for id in ["a", "b", "c"] {
        assert_eq!(line.effects(id).await, 1, "{id}");
    }
}

/// A handler that does not end is rolled back: nothing of it is written, and no attempt is recorded.
pub async fn the_end_of_the_patience_rolls_back_and_releases<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Wait]));
    let worker = line.start_with(Settings { drain: Duration::from_millis(50), ..Settings::default() });
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    worker.stop().await;
    let counts = line.queue.counts();
    let acks = usize::from(line.world.inbox());
    assert_eq!((counts.acks, counts.ready, counts.unsettled), (acks, 1 - acks, 0));
    assert_eq!(line.effects("a").await, 0);
    // A row is released as it was.
    let is_back = |row: &Row| (row.crash_count, row.attempts, row.lost_connections, row.locked_by) == (0, 0, 0, None);
    until(async || line.scheduled().await.iter().all(is_back)).await;
    line.desk.go.send_replace(true);
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 2));
}

/// A connection is lost while handlers run: their commits stand, and redeliveries are duplicates.
pub async fn a_lost_broker_is_opened_again<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Wait]));
    let worker = line.start();
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.broker.disconnect();
    line.desk.go.send_replace(true);
    // A stored message is acked before it runs, so it is not redelivered.
    let expected = if line.world.inbox() { &["processed"][..] } else { &["duplicate", "processed"] };
    let outcomes = sorted(line.outcomes(expected.len()).await);
    soon(line.queue.idle()).await;
    assert_eq!(outcomes, expected);
    let stale = usize::from(!line.world.inbox());
    assert_eq!(line.queue.counts().stale, stale, "the first ack came too late, and settled nothing");
    line.publish(Order::ok("b"));
    line.outcomes(expected.len() + 1).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 1));
}

/// A broker that is unavailable for a while.
pub async fn a_broker_that_refuses_is_tried_again<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    let worker = line.start();
    line.outcomes(1).await;
    line.broker.refuse_connections(true);
    line.broker.disconnect();
    line.publish(Order::ok("b"));
    line.broker.refuse_connections(false);
    line.outcomes(2).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 1));
    // At its start, a worker that cannot consume returns an error.
    line.broker.refuse_connections(true);
    let refused = line.start().refused().await;
    assert!(refused.contains("could not consume orders"), "{refused}");
}
