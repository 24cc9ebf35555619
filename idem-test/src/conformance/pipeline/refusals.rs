//! Refusals by the database: of one message, of all of them, or of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use idem_core::store::StoreError;
use idem_core::{BoxError, Delivery, DeliveryOrder, Source, SubscribeOptions};
use tokio::sync::watch;

use crate::Publication;
use crate::conformance::soon;
use crate::tap::{Tap, Tapped};

use super::faulty::Do;
use super::orders::Act;
use super::watched::{Watched, is_ready, watched};
use super::{Line, Order, Settings, World};

async fn refuse<W: World>(line: &Line<W>, what: &str, table: &str, key: Option<&str>) {
    line.world.run(&line.world.refuse(what, table, key)).await;
}

async fn allow<W: World>(line: &Line<W>, table: &str) {
    line.world.run(&line.world.allow(table)).await;
}

/// All other messages are processed meanwhile. The refused one stays with the worker, unacked, and is processed once
/// nothing refuses it.
pub async fn a_message_that_the_database_refuses_is_held_and_harms_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.lease(Some(Duration::from_secs(2)));
    refuse(&line, "INSERT", "processed_messages", Some("bad")).await;
    let (settings, shown) = watched(2);
    line.publish(Order::ok("bad"));
    let worker = line.start_with(settings);
    let watched = Watched::of(shown).await;
    for n in 0..50 {
        line.publish(Order::ok(&n.to_string()));
    }
    assert!(line.outcomes(50).await.iter().all(|outcome| outcome == "processed"));
    soon(line.queue.settled(50)).await;
    // It is refused more than once.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let counts = line.queue.counts();
    assert_eq!((counts.unsettled, counts.ready, counts.redeliveries), (1, 0, 0), "{counts:?}");
    assert_eq!(line.effects("bad").await, 0);
    watched.was_always_ready();
    allow(&line, "processed_messages").await;
    assert_eq!(line.outcomes(51).await[50], "processed");
    soon(line.queue.idle()).await;
    worker.stop().await;
    assert_eq!((line.effects("bad").await, line.desk.runs("bad")), (1, 1));
}

/// Each try is shorter than the time after which a lease is extended, and so is each wait between two tries.
pub async fn what_is_tried_again_and_again_keeps_its_lease<W: World>(world: W) {
    let line = Line::new(world).await;
    let lease = Duration::from_secs(6);
    line.broker.lease(Some(lease));
    let (locked, held) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let hook = {
        let (locked, held) = (locked.clone(), held.clone());
        move |method: &'static str, _: &[u8]| match method.starts_with("claim") && locked.load(SeqCst) {
            true => {
                held.fetch_add(1, SeqCst);
                Do::Fail(StoreError::LockTimeout)
            }
            false => Do::Work,
        }
    };
    line.publish(Order::ok("first"));
    line.publish_redelivered(Order::ok("again")).await;
    let before = line.queue.counts().redeliveries;
    let worker = line.start_over(hook, Settings::default());
    // There is no signal that no delivery goes back. One that is not extended has gone back by then.
    tokio::time::sleep(lease + lease / 2).await;
    assert!(held.load(SeqCst) > 4);
    locked.store(false, SeqCst);
    line.outcomes(if W::INBOX { 2 } else { 3 }).await;
    soon(line.queue.idle()).await;
    worker.stop().await;
    let counts = line.queue.counts();
    assert_eq!((counts.redeliveries - before, counts.stale), (1, 0), "{counts:?}");
    assert_eq!((line.desk.runs("first"), line.desk.runs("again")), (1, 1));
}

/// There is one lane, and more deliveries than it processes: a refused message leaves the lane to the others.
pub async fn a_refused_message_of_a_batch_costs_no_lane<W: World>(world: W) {
    let line = Line::new(world).await;
    refuse(&line, "INSERT", "processed_messages", Some("bad")).await;
    let (settings, shown) = watched(1);
    for n in 0..60 {
        line.publish(Order::ok(&if n == 4 { "bad".to_owned() } else { n.to_string() }));
    }
    let worker = line.start_with(settings);
    let watched = Watched::of(shown).await;
    assert!(line.outcomes(59).await.iter().all(|outcome| outcome == "processed"));
    watched.was_always_ready();
    allow(&line, "processed_messages").await;
    assert_eq!(line.outcomes(60).await[59], "processed");
    soon(line.queue.idle()).await;
    worker.stop().await;
    for n in 0..60 {
        let id = if n == 4 { "bad".to_owned() } else { n.to_string() };
        assert_eq!(line.effects(&id).await, 1, "{id}");
    }
}

/// No message of its key passes it, and other keys do not wait for it.
pub async fn a_refused_message_keeps_its_place_and_costs_no_lane<W: World>(world: W) {
    let line = Line::new(world).await;
    refuse(&line, "INSERT", "processed_messages", Some("bad")).await;
    let publish = |id: &str, lane: u64| line.publish(Publication::from(Order::ok(id)).ordering_key(lane));
    publish("bad", 1);
    publish("behind", 1);
    let (settings, shown) = watched(1);
    let worker = line.start_with(Settings { order: DeliveryOrder::Key, ..settings });
    let watched = Watched::of(shown).await;
    for n in 0..10 {
        publish(&n.to_string(), 2);
    }
    line.outcomes(10).await;
    assert_eq!(line.desk.runs("behind"), 0);
    watched.was_always_ready();
    allow(&line, "processed_messages").await;
    line.outcomes(12).await;
    soon(line.queue.idle()).await;
    worker.stop().await;
    assert_eq!(line.desk.log()[10..], ["bad", "behind"]);
    assert_eq!(line.queue.counts().redeliveries, 0);
}

/// A drain releases held deliveries.
pub async fn a_drain_releases_what_the_database_refuses<W: World>(world: W) {
    let line = Line::new(world).await;
    refuse(&line, "INSERT", "processed_messages", Some("bad")).await;
    line.publish(Order::ok("bad"));
    let worker = line.start();
    line.publish(Order::ok("other"));
    line.outcomes(1).await;
    worker.stop().await;
    let counts = line.queue.counts();
    assert_eq!((counts.acks, counts.ready, counts.unsettled), (1, 1, 0));
    allow(&line, "processed_messages").await;
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
}

/// A failure whose row is refused: the message is stored as soon as possible, and its handler does not run before that.
pub async fn a_failure_that_the_database_refuses_to_record_harms_no_other<W: World>(world: W) {
    if W::INBOX {
        return;
    }
    let line = Line::new(world).await;
    refuse(&line, "INSERT", "inbox_messages", Some("bad")).await;
    let (settings, shown) = watched(2);
    let tries = watch::Sender::new(0);
    let tried = tries.clone();
    let hook = move |at: &str, key: &[u8]| {
        if at == "insert" && key == b"bad" {
            tried.send_modify(|tries| *tries += 1);
        }
        Do::Work
    };
    let worker = line.start_over(hook, settings);
    let watched = Watched::of(shown).await;
    line.publish(Order::new("bad", &[Act::Fail, Act::Ok]).by_attempt());
    for n in 0..50 {
        line.publish(Order::ok(&n.to_string()));
    }
    line.outcomes(50).await;
    soon(line.queue.settled(50)).await;
    soon(tries.subscribe().wait_for(|tries| *tries > 0)).await.unwrap();
    let runs = line.desk.runs("bad");
    soon(tries.subscribe().wait_for(|tries| *tries > 3)).await.unwrap();
    assert_eq!((line.queue.counts().unsettled, line.desk.runs("bad")), (1, runs));
    watched.was_always_ready();
    allow(&line, "inbox_messages").await;
    // The run that could not be recorded was not charged.
    assert_eq!(line.outcomes(53).await[50..], ["scheduled 0", "scheduled 1", "processed"]);
    soon(line.queue.idle()).await;
    worker.stop().await;
    assert_eq!((line.effects("bad").await, line.desk.runs("bad")), (1, runs + 2));
}

/// A row whose claim cannot be dated waits longer and longer, and is not charged.
pub async fn a_row_that_the_database_refuses_harms_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    refuse(&line, "UPDATE", "processed_messages", Some("bad")).await;
    line.publish_redelivered(Order::ok("bad")).await;
    let (settings, shown) = watched(2);
    let worker = line.start_with(settings);
    let watched = Watched::of(shown).await;
    let first = usize::from(!W::INBOX);
    for n in 0..50 {
        line.publish(Order::ok(&n.to_string()));
    }
    line.outcomes(50 + first).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    watched.was_always_ready();
    let row = line.scheduled().await.remove(0);
    assert_eq!((row.attempts, row.breaks), (0, 0));
    allow(&line, "processed_messages").await;
    assert_eq!(line.outcomes(51 + first).await[50 + first], "processed");
    worker.stop().await;
    assert_eq!((line.effects("bad").await, line.desk.runs("bad")), (1, 1));
}

/// The fault is then the database's: no further delivery can be taken. The worker recovers by itself.
pub async fn a_worker_that_holds_nothing_but_refused_messages_is_not_ready<W: World>(world: W) {
    let line = Line::new(world).await;
    refuse(&line, "INSERT", "processed_messages", None).await;
    let (settings, shown) = watched(1);
    let all = 2 * W::BATCH;
    let worker = line.start_with(settings);
    let health = shown.borrow().clone().unwrap();
    is_ready(&health, true).await;
    (0..all).for_each(|n| line.publish(Order::ok(&n.to_string())));
    is_ready(&health, false).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!health.is_ready() && health.broker());
    allow(&line, "processed_messages").await;
    line.outcomes(all).await;
    is_ready(&health, true).await;
    soon(line.queue.idle()).await;
    worker.stop().await;
    assert_eq!(line.queue.counts().redeliveries, 0);
}

/// Each queue has its own limit of unsettled deliveries, so others can still be taken when one is full.
pub async fn several_queues_may_hold_more_refused_messages_than_one<W: World>(world: W) {
    let line = Line::new(world).await;
    refuse(&line, "INSERT", "processed_messages", None).await;
    let (settings, shown) = watched(1);
    let worker = line.start_at(Tapped::new(line.queue.clone(), TwoQueues), settings);
    let watched = Watched::of(shown.clone()).await;
    let of_one = if W::BATCH > 1 { 2 * W::BATCH } else { 1 };
    (0..of_one).for_each(|n| line.publish(Order::ok(&n.to_string())));
    soon(line.queue.delivered(of_one)).await;
    // There is no signal that all have been refused.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watched.was_always_ready();
    (of_one..2 * of_one).for_each(|n| line.publish(Order::ok(&n.to_string())));
    let health = shown.borrow().clone().unwrap();
    is_ready(&health, false).await;
    allow(&line, "processed_messages").await;
    line.outcomes(2 * of_one).await;
    soon(line.queue.idle()).await;
    worker.stop().await;
}

/// Acts as two queues, each of which may have as many deliveries unsettled as the worker says.
struct TwoQueues;

impl Tap for TwoQueues {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }

    async fn subscribe<S: Source>(&mut self, source: &mut S, mut options: SubscribeOptions) -> Result<(), BoxError> {
        options.max_unsettled *= 2;
        source.subscribe(options).await
    }

    fn queues<S: Source>(&self, _: &S) -> usize {
        2
    }
}

/// A full disk, for example: the database answers each query and refuses each claim. The worker is not ready as long as
/// that lasts, and tries one message at a time, less and less often.
pub async fn a_database_that_refuses_all_is_tried_seldom_and_seen_in_the_health<W: World>(world: W) {
    let line = Line::new(world).await;
    let all = 40 * W::BATCH;
    (0..all).for_each(|n| line.publish(Order::ok(&n.to_string())));
    let (tries, full) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
    let hook = {
        let (tries, full) = (tries.clone(), full.clone());
        move |at: &str, _: &[u8]| {
            if at != "claim" || !full.load(SeqCst) {
                return Do::Work;
            }
            tries.fetch_add(1, SeqCst);
            Do::Fail(StoreError::Unavailable("no space left on device".into()))
        }
    };
    let (settings, shown) = watched(8);
    let worker = line.start_over(hook, settings);
    let health = shown.borrow().clone().unwrap();
    soon(async {
        while tries.load(SeqCst) == 0 || health.is_ready() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!health.is_ready(), "after {} tries", tries.load(SeqCst));
    }
    let tries = tries.load(SeqCst);
    assert!(tries < 25, "{tries} tries in 4 seconds");
    full.store(false, SeqCst);
    line.outcomes(all).await;
    is_ready(&health, true).await;
    soon(line.queue.idle()).await;
    worker.stop().await;
    assert_eq!(line.queue.counts().redeliveries, 0);
}

/// A single lost connection: the database is pinged before anything stops, and answers.
pub async fn a_lost_connection_is_no_outage_while_the_database_answers<W: World>(world: W) {
    if W::FEATURES.suicide.is_none() {
        return;
    }
    let line = Line::new(world).await;
    let (settings, shown) = watched(2);
    let (pings, paused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let hook = {
        let (pings, paused, shown) = (pings.clone(), paused.clone(), shown.clone());
        move |at: &str, _: &[u8]| {
            if at == "ping" {
                pings.fetch_add(1, SeqCst);
                paused.fetch_or(shown.borrow().as_ref().is_some_and(|health| !health.is_ready()), SeqCst);
            }
            Do::Work
        }
    };
    let worker = line.start_over(hook, settings);
    let watched = Watched::of(shown).await;
    line.publish(Order::new("breaker", &[Act::Suicide, Act::Ok]));
    for n in 0..20 {
        line.publish(Order::ok(&n.to_string()));
    }
    line.outcomes(if W::INBOX { 21 } else { 22 }).await;
    soon(async {
        while line.effects("breaker").await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    watched.was_always_ready();
    assert!(pings.load(SeqCst) > 0 && !paused.load(SeqCst), "it was asked, and nothing stood still meanwhile");
    worker.stop().await;
}
