//! When a database that refuses messages makes a worker not ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use idem_core::store::{StoreError, Transactions};
use idem_core::{BoxError, Delivery, HasConnection, Source, SubscribeOptions};

use idem_conformance::store::{Setup, World};
use idem_conformance::{soon, until};
use idem_test::tap::{Tap, Tapped};

use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order};
use super::watched::{Watched, is_ready, watched};

/// The fault is then the database's: no further delivery can be taken. The worker recovers by itself.
pub async fn a_worker_that_holds_nothing_but_refused_messages_is_not_ready<W: World>(world: W) {
    let line = Line::new(world).await;
    line.refuse("INSERT", "processed_messages", None).await;
    let (settings, shown) = watched(1);
    let all = 2 * line.world.batch();
    let worker = line.start_with(settings);
    let health = shown.borrow().clone().unwrap();
    is_ready(&health, true).await;
    (0..all).for_each(|n| line.publish(Order::ok(&n.to_string())));
    is_ready(&health, false).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!health.is_ready() && health.broker());
    line.allow("processed_messages").await;
    line.outcomes(all).await;
    is_ready(&health, true).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.queue.counts().redeliveries, 0);
}

/// Each queue has its own limit of unsettled deliveries, so others can still be taken when one is full.
pub async fn several_queues_may_hold_more_refused_messages_than_one<W: World>(world: W) {
    let line = Line::new(world).await;
    line.refuse("INSERT", "processed_messages", None).await;
    let (settings, shown) = watched(1);
    let worker = line.start_at(Tapped::new(line.queue.clone(), TwoQueues), settings);
    let watched = Watched::of(shown.clone()).await;
    let of_one = if line.world.inbox() && line.world.batch() == 1 { 1 } else { 2 * line.world.batch() };
    (0..of_one).for_each(|n| line.publish(Order::ok(&n.to_string())));
    soon(line.queue.delivered(of_one)).await;
    // There is no signal that all have been refused.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watched.was_always_ready();
    (of_one..2 * of_one).for_each(|n| line.publish(Order::ok(&n.to_string())));
    let health = shown.borrow().clone().unwrap();
    is_ready(&health, false).await;
    line.allow("processed_messages").await;
    line.outcomes(2 * of_one).await;
    worker.stop_once_idle(&line.queue).await;
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

/// A source may take one delivery at a time for a while. Then one refused message is enough to keep all others back.
pub async fn a_source_that_takes_less_for_a_while_is_full_earlier<W: World>(world: W) {
    let line = Line::new(world).await;
    line.refuse("INSERT", "processed_messages", Some("refused")).await;
    let (settings, shown) = watched(4);
    let capacity = Arc::new(AtomicUsize::new(usize::MAX));
    let worker = line.start_at(Tapped::new(line.queue.clone(), Capacity(capacity.clone())), settings);
    let watched = Watched::of(shown.clone()).await;
    line.publish(Order::ok("refused"));
    soon(line.queue.delivered(1)).await;
    // There is no signal that it has been refused.
    tokio::time::sleep(Duration::from_secs(1)).await;
    watched.was_always_ready();
    let health = shown.borrow().clone().unwrap();
    for (least, is_full) in [(1, true), (2, false)] {
        capacity.store(least, SeqCst);
        line.publish(Order::ok(&least.to_string()));
        is_ready(&health, !is_full).await;
    }
    line.allow("processed_messages").await;
    line.outcomes(3).await;
    worker.stop_once_idle(&line.queue).await;
}

/// Says that it has room for so many deliveries.
struct Capacity(Arc<AtomicUsize>);

impl Tap for Capacity {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }

    fn capacity<S: Source>(&self, _: &S) -> Option<usize> {
        Some(self.0.load(SeqCst))
    }
}

/// A full disk, for example: the database answers each query and refuses each claim. The worker is not ready as long as
/// that lasts, except for the moment of each try, and tries less and less often.
pub async fn a_database_that_refuses_all_is_tried_seldom_and_seen_in_the_health<W: World>(world: W) {
    let line = Line::new(world).await;
    let all = 40 * line.world.batch();
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
    until(async || tries.load(SeqCst) != 0 && !health.is_ready()).await;
    let mut ready = 0;
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        ready += usize::from(health.is_ready());
    }
    let tries = tries.load(SeqCst);
    // It goes on after 0.1, 0.2, 0.4, 0.8 and 1.6 seconds, or up to twice that, each time with all that may run at once.
    assert!(tries < 100 && ready < 50, "{tries} tries in 4 seconds, and ready at {ready} of 200 looks");
    full.store(false, SeqCst);
    line.outcomes(all).await;
    is_ready(&health, true).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.queue.counts().redeliveries, 0);
}

/// A single lost connection: the database is pinged before anything stops, and answers.
pub async fn a_lost_connection_is_no_outage_while_the_database_answers<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.terminate_backend.is_some(), world).await else { return };
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
    line.publish(Order::new("breaker", &[Act::TerminateBackend, Act::Ok]));
    line.publish_numbers(0..20);
    line.outcomes(if line.world.inbox() { 21 } else { 22 }).await;
    until(async || line.effects("breaker").await != 0).await;
    watched.was_always_ready();
    assert!(pings.load(SeqCst) > 0 && !paused.load(SeqCst), "it was asked, and nothing stood still meanwhile");
    worker.stop().await;
}

/// No message can be claimed, and each claim looks as if another process had it. A broker that is told nothing would time
/// out again and again, and count each time as a return.
pub async fn a_locked_table_of_claims_makes_its_worker_unready<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    let (settings, shown) = watched(1);
    let other = line.world.store(Setup::default()).await.unwrap();
    let worker = line.start_with(settings);
    let health = shown.borrow().clone().unwrap();
    is_ready(&health, true).await;
    // Its connection prepares the statement of the claim here, which would also wait for the lock.
    line.publish(Order::ok("before"));
    assert_eq!(line.outcomes(1).await.len(), 1);
    let mut block = other.begin(Duration::from_secs(60)).await.unwrap();
    let lock = format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", line.world.own("processed_messages"));
    W::execute(<W::Store as HasConnection<W::Connection>>::connection(&mut block), &lock).await.unwrap();
    line.publish(Order::ok("a"));
    is_ready(&health, false).await;
    other.rollback(block).await.unwrap();
    assert_eq!(line.outcomes(2).await.len(), 2);
    is_ready(&health, true).await;
    line.queue.idle().await;
    worker.stop().await;
    assert_eq!(line.effects("a").await, 1);
}
