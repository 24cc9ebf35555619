//! The limit of the messages that wait to be published, and the watch over relays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use idem_core::Worker;
use idem_core::store::StoreError;

use idem_conformance::store::World;
use idem_conformance::{soon, until};

use super::crashes::{crash_on, schedule};
use super::faulty::Do;
use super::orders::{Order, Orders};
use super::settings::Settings;
use super::staging::{Stages, Staging};
use super::watched::{is_ready, watched};

/// Consumption pauses while too many messages wait, and goes on when those are published. Nothing fails.
pub async fn a_backlog_pauses_consumption_until_it_is_published<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let (settings, health) = watched(2);
    // Each failure would be the last.
    let retry = Settings::once().retry;
    let settings = Settings { backlog: Some(3), relay_patience: Duration::from_millis(600), retry, ..settings };
    let worker = staging.start(settings);
    for id in ["a", "b"] {
        staging.publish("Staging", Order::ok(id));
    }
    staging.0.outcomes(2).await;
    let health = health.borrow().clone().unwrap();
    until(async || health.unrelayed().is_some_and(|why| why.contains("more than 3 messages"))).await;
    assert!(!health.is_ready());
    for id in ["c", "d", "e"] {
        staging.publish("Staging", Order::ok(id));
    }
    // One delivery may be on its way already.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(staging.staged().await.len() <= 6, "{:?}", staging.staged().await);
    let sink = idem_test::MemorySink::new();
    let relay = idem_core::Relay::new("billing", staging.0.store.clone(), sink.clone());
    let relay = tokio::spawn(relay.run_until(std::future::pending()));
    soon(sink.wait_for(|sink| sink.published().len() == 10)).await;
    is_ready(&health, true).await;
    relay.abort();
    worker.stop().await;
    assert_eq!(staging.0.outcomes(5).await, ["processed"; 5]);
}

/// A worker that paused goes on if its outbox cannot be counted any more, and pauses again when it can.
pub async fn a_backlog_that_cannot_be_counted_stops_no_worker<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let (settings, health) = watched(2);
    let settings = Settings { backlog: Some(3), relay_patience: Duration::from_millis(600), ..settings };
    let blind = Arc::new(AtomicBool::new(false));
    let is_blind = blind.clone();
    let hook = move |method: &'static str, _: &[u8]| match method {
        "outbox_stats" if is_blind.load(Relaxed) => Do::Fail(StoreError::LockTimeout),
        _ => Do::Work,
    };
    let worker = staging.start_over(hook, settings);
    let health = health.borrow().clone().unwrap();
    let pauses = async || {
        let full = async {
            while health.unrelayed().is_none_or(|why| !why.contains("more than 3 messages")) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(full).await;
    };
    for id in ["a", "b"] {
        staging.publish("Staging", Order::ok(id));
    }
    staging.0.outcomes(2).await;
    pauses().await;
    blind.store(true, Relaxed);
    // One delivery may be on its way already, so the last of these shows that consumption goes on.
    for id in ["c", "d", "e"] {
        staging.publish("Staging", Order::ok(id));
    }
    staging.0.outcomes(5).await;
    blind.store(false, Relaxed);
    pauses().await;
    worker.stop().await;
}

/// A row that may have ended its process runs although the outbox is full, and other rows wait.
pub async fn a_full_outbox_does_not_stop_orphans<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let line = &staging.0;
    let (settings, health) = watched(2);
    let settings = Settings { backlog: Some(0), relay_patience: Duration::from_millis(600), ..settings };
    let worker = Worker::new(settings.consumer, line.store.clone(), line.queue.clone()).state(line.desk.clone());
    let worker = line.run_until_stopped(worker.handler::<Stages<W>>().handler::<Orders<W>>(), settings);
    let health = health.borrow().clone().unwrap();
    staging.publish("Staging", Order::ok("a"));
    until(async || health.unrelayed().is_some_and(|why| why.contains("more than 0 messages"))).await;
    let handler = schedule(line, "billing", Order::ok("orphan")).await;
    crash_on(line, handler, 1, Duration::ZERO).await;
    schedule(line, "billing", Order::ok("ordinary")).await;
    until(async || line.effects("orphan").await != 0).await;
    assert_eq!(line.desk.runs("ordinary"), 0);
    worker.stop().await;
}
