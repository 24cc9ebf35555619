//! The lease: which relay publishes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use idem_core::store::{LeaseAnswer, LeaseRequest, OutboxRows, Page, PublishFailure, RowRef, Transactions};
use uuid::Uuid;

use crate::soon;
use crate::store::{World, of_row};
use idem_test::{MemorySink, Reply};

use super::line::{Line, message, text};

/// So long that nothing happens at its end in a test.
const LONG: Duration = Duration::from_secs(600);

/// A relay that drains waits for what it has published, and another goes on at once.
pub async fn a_drain_waits_for_its_confirms_and_gives_its_lease_back<W: World>(world: W) {
    let line = Line::new(world).await;
    let relay = line.start_with(line.relay(line.store.clone(), line.sink.clone()).lease_duration(LONG));
    line.stage((0..100).map(|n| message(n).key(n))).await;
    soon(line.sink.wait_for(|sink| sink.calls() >= 1)).await;
    relay.stop().await.unwrap();
    let (published, waiting) = (line.sink.published().len(), line.waiting().await.len());
    assert_eq!(published + waiting, 100, "what was published is deleted");
    let began = Instant::now();
    let relay = line.start_with(line.relay(line.store.clone(), line.sink.clone()).lease_duration(LONG));
    line.stage([message("after")]).await;
    line.published(101).await;
    assert!(began.elapsed() < Duration::from_secs(20));
    relay.stop().await.unwrap();
}

/// It waits no longer for the confirms, since it could delete nothing.
pub async fn a_drain_ends_when_another_relay_has_the_lease<W: World>(world: W) {
    let line = Line::new(world).await;
    let other = line.store.register_outbox("other").await.unwrap();
    line.store.lease_outbox(other, Uuid::new_v4(), LeaseRequest::Hold(LONG)).await.unwrap();
    line.sink.on_publish(|_| Reply::Hang);
    line.stage([message("one")]).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).lease_duration(Duration::from_secs(6));
    let relay = relay.publish_timeout(LONG).shutdown_timeout(LONG);
    let health = relay.health();
    let relay = line.start_with(relay);
    soon(line.sink.wait_for(|sink| sink.calls() >= 1)).await;
    let stopped = tokio::spawn(relay.stop());
    soon(async {
        while health.broker() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let outboxes = line.world.own("outboxes");
    let columns = "locked_by, lease, locked_until";
    let taken = format!("SELECT {columns} FROM {outboxes} WHERE name = 'other'");
    line.world.run(&format!("UPDATE {outboxes} SET ({columns}) = ({taken}) WHERE name = 'billing'")).await;
    stopped.await.unwrap().unwrap();
    assert_eq!(line.waiting().await.len(), 1);
}

/// Of two relays one publishes, and the other one stands by.
pub async fn one_relay_publishes_and_another_stands_by<W: World>(world: W) {
    let line = Line::new(world).await;
    let (other, lease) = (MemorySink::new(), Duration::from_secs(3));
    let first = line.start_with(line.relay(line.store.clone(), line.sink.clone()).lease_duration(lease));
    line.stage([message("first")]).await;
    line.published(1).await;
    let second = line.start_with(line.relay(line.store.clone(), other.clone()).lease_duration(lease));
    for n in 0..20 {
        line.stage((0..10).map(|key| message(format!("{n} {key}")).key(key))).await;
        line.published(1 + 10 * (n + 1)).await;
        tokio::time::sleep(lease / 10).await;
    }
    line.is_empty().await;
    first.stop().await.unwrap();
    line.stage([message("last")]).await;
    soon(other.wait_for(|sink| sink.published().len() == 1)).await;
    second.stop().await.unwrap();
    assert_eq!((line.sink.published().len(), other.published().len()), (201, 1), "each once");
}

/// At the end of its lease.
pub async fn the_outbox_of_a_relay_that_dies_is_taken_over<W: World>(world: W) {
    let line = Line::new(world).await;
    let lease = Duration::from_millis(500);
    let dies = line.start_with(line.relay(line.store.clone(), line.sink.clone()).lease_duration(lease));
    line.stage([message("one").key("k")]).await;
    line.published(1).await;
    let other = line.start_with(line.relay(line.store.clone(), line.sink.clone()).lease_duration(lease));
    dies.crash().await;
    line.stage((0..50).map(|n| message(n).key(n))).await;
    line.published(51).await;
    line.is_empty().await;
    other.stop().await.unwrap();
}

/// It stops before its lease ends, and another one takes over. Nothing is lost when it can renew again.
pub async fn a_relay_that_cannot_renew_its_lease_stops_publishing<W: World>(world: W) {
    let line = Line::new(world).await;
    let away = Arc::new(AtomicBool::new(false));
    let is_away = away.clone();
    let store = line.failing(move |method| method == "lease_outbox" && is_away.load(SeqCst));
    let lease = Duration::from_millis(900);
    let paused = line.start_with(line.relay(store, line.sink.clone()).lease_duration(lease));
    line.stage([message("first").key("k")]).await;
    line.published(1).await;
    away.store(true, SeqCst);
    // Before the lease ends, but not before the last third of it.
    tokio::time::sleep(lease * 7 / 10).await;
    let calls = line.sink.calls();
    line.stage((0..20).map(|n| message(n).key("k"))).await;
    tokio::time::sleep(lease).await;
    assert_eq!(line.sink.calls(), calls, "it publishes without a lease");
    let other = MemorySink::new();
    let relay = line.start_with(line.relay(line.store.clone(), other.clone()).lease_duration(lease));
    soon(other.wait_for(|sink| sink.published().len() >= 20)).await;
    line.is_empty().await;
    away.store(false, SeqCst);
    line.stage([message("last").key("k")]).await;
    soon(async {
        while other.published().len() + line.sink.published().len() < 22 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for relay in [paused, relay] {
        relay.stop().await.unwrap();
    }
}

/// A relay that stands by asks for the lease each second. On a database with one writer it must not wait for that, nor keep it
/// from handlers.
pub async fn a_relay_that_stands_by_waits_for_no_transaction<W: World>(world: W) {
    let line = Line::new(world).await;
    assert_eq!(line.lease(Uuid::new_v4(), LONG).await, LeaseAnswer::Held);
    let txn = line.store.begin(LONG).await.unwrap();
    assert_eq!(soon(line.lease(Uuid::new_v4(), LONG)).await, LeaseAnswer::Other);
    line.store.rollback(txn).await.unwrap();
}

/// The database's clock was ahead when it was taken, and was set back. Otherwise nothing would be published until then.
pub async fn a_lease_that_ends_in_the_far_future_is_free<W: World>(world: W) {
    let line = Line::new(world).await;
    let (day, ahead) = (Duration::from_secs(24 * 60 * 60), Uuid::new_v4());
    assert_eq!(line.lease(ahead, 8 * day).await, LeaseAnswer::Held);
    assert_eq!(line.lease(Uuid::new_v4(), LONG).await, LeaseAnswer::Other, "it is as long as it was asked for");
    let short = line.store.register_outbox("short").await.unwrap();
    let hold = LeaseRequest::Hold(Duration::from_secs(8));
    line.store.lease_outbox(short, Uuid::new_v4(), hold).await.unwrap();
    let outboxes = line.world.own("outboxes");
    line.world.run(&format!("UPDATE {outboxes} SET lease = (SELECT lease FROM {outboxes} WHERE name = 'short')")).await;
    let relay = line.start();
    line.stage([message("a")]).await;
    line.published(1).await;
    assert_eq!(line.lease(ahead, LONG).await, LeaseAnswer::Other);
    relay.stop().await.unwrap();
}

/// A restored database does not know the outbox. A relay that runs registers it again, as whoever stages does.
pub async fn a_relay_whose_outbox_is_unknown_registers_it_again<W: World>(world: W) {
    let line = Line::new(world).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).lease_duration(Duration::from_millis(600));
    let relay = line.start_with(relay);
    line.stage([message("before")]).await;
    line.published(1).await;
    line.is_empty().await;
    let outboxes = line.world.own("outboxes");
    line.world.run(&format!("DELETE FROM {outboxes}")).await;
    let registered = async {
        while line.store.outbox_stats(line.outbox, 0).await.unwrap().relay_seen.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(registered).await;
    line.stage([message("after")]).await;
    assert_eq!(line.published(2).await, ["before", "after"]);
    relay.stop().await.unwrap();
}

/// The token fences the deletes and the records of a relay that was paused.
pub async fn a_relay_that_lost_its_lease_deletes_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    line.stage([message("one")]).await;
    let row = line.waiting().await.remove(0);
    let (paused, other) = (Uuid::new_v4(), Uuid::new_v4());
    let (store, outbox) = (&line.store, line.outbox);
    assert_eq!(line.lease(paused, Duration::from_millis(1)).await, LeaseAnswer::Held);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(line.lease(other, LONG).await, LeaseAnswer::Held);
    assert_eq!(line.lease(paused, LONG).await, LeaseAnswer::Other);
    assert_eq!(store.delete_published(outbox, paused, &[of_row(&row)]).await.unwrap(), 0);
    let failure = |next| PublishFailure { row: of_row(&row), attempts: 1, next, error: "no".to_owned() };
    store.record_failures(outbox, paused, &[failure(None)]).await.unwrap();
    store.record_failures(outbox, paused, &[failure(Some(LONG))]).await.unwrap();
    assert!(store.dead_outgoing(outbox, Page::default()).await.unwrap().is_empty());
    store.lease_outbox(outbox, paused, LeaseRequest::Release).await.unwrap();
    assert_eq!(line.waiting().await[0].message.attempt(), 1);
    assert_eq!(line.lease(paused, LONG).await, LeaseAnswer::Other);
    assert_eq!(line.lease(other, LONG).await, LeaseAnswer::Held);
    store.record_failures(outbox, other, &[failure(Some(LONG))]).await.unwrap();
    let row = line.waiting().await.remove(0);
    assert!(row.message.attempt() == 2 && row.due > Duration::from_secs(500), "{row:?}");
    assert_eq!(store.delete_published(outbox, other, &[of_row(&row)]).await.unwrap(), 1);
}

/// As it is after a record without an answer.
pub async fn a_failure_that_is_recorded_again_counts_once<W: World>(world: W) {
    let line = Line::new(world).await;
    line.stage([message("one")]).await;
    let (store, outbox, token) = (&line.store, line.outbox, Uuid::new_v4());
    line.lease(token, LONG).await;
    let row = of_row(&line.waiting().await[0]);
    for attempts in [1, 1, 2, 1] {
        let failure = PublishFailure { row, attempts, next: Some(Duration::ZERO), error: "no".to_owned() };
        store.record_failures(outbox, token, &[failure]).await.unwrap();
    }
    assert_eq!(line.waiting().await[0].message.attempt(), 3);
    for _ in 0..2 {
        let failure = PublishFailure { row, attempts: 3, next: None, error: "no".to_owned() };
        store.record_failures(outbox, token, &[failure]).await.unwrap();
    }
    let dead = store.dead_outgoing(outbox, Page::default()).await.unwrap();
    assert_eq!(dead.iter().map(|dead| dead.attempts).collect::<Vec<_>>(), [3]);
}

/// An id may be given again by a server that takes over from a failed one, or in a file that was restored.
pub async fn a_row_whose_id_was_given_again_is_left_alone<W: World>(world: W) {
    let line = Line::new(world).await;
    line.stage([message("one")]).await;
    let row = line.waiting().await.remove(0);
    let (store, outbox, token) = (&line.store, line.outbox, Uuid::new_v4());
    line.lease(token, LONG).await;
    let before = RowRef { message_id: Uuid::new_v4(), ..of_row(&row) };
    assert_eq!(store.delete_published(outbox, token, &[before]).await.unwrap(), 0);
    for next in [None, Some(LONG)] {
        let failure = PublishFailure { row: before, attempts: 1, next, error: "no".to_owned() };
        store.record_failures(outbox, token, &[failure]).await.unwrap();
    }
    assert!(store.dead_outgoing(outbox, Page::default()).await.unwrap().is_empty());
    let now = line.waiting().await.remove(0);
    assert_eq!((now.message, now.due), (row.message, row.due));
}

/// A relay publishes what was staged under its name.
pub async fn another_outbox_is_left_alone<W: World>(world: W) {
    let line = Line::new(world).await;
    let shipping = line.store.register_outbox("shipping").await.unwrap();
    let shipping = Line { outbox: shipping, ..line };
    shipping.stage([message("of shipping")]).await;
    let line = Line { outbox: shipping.store.register_outbox("billing").await.unwrap(), ..shipping };
    line.sink.on_publish(|message| if text(message) == "of billing" { Reply::Confirm } else { Reply::Panic });
    let relay = line.start();
    line.stage([message("of billing")]).await;
    line.published(1).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
    let shipping = line.store.register_outbox("shipping").await.unwrap();
    let line = Line { outbox: shipping, ..line };
    assert_eq!(line.waiting().await.len(), 1);
}

/// No worker takes them for those that it needs.
pub async fn relays_of_another_outbox_do_not_count<W: World>(world: W) {
    let line = Line::new(world).await;
    let (store, outbox) = (&line.store, line.outbox);
    let shipping = store.register_outbox("shipping").await.unwrap();
    let hold = LeaseRequest::Hold(LONG);
    assert_eq!(store.lease_outbox(shipping, Uuid::new_v4(), hold).await.unwrap(), LeaseAnswer::Held);
    assert_eq!(store.outbox_stats(outbox, 1).await.unwrap().relay_seen, None);
    assert_eq!(line.lease(Uuid::new_v4(), LONG).await, LeaseAnswer::Held);
    assert!(store.outbox_stats(outbox, 1).await.unwrap().relay_seen.is_some());
}
