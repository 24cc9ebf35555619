//! Long database outages, and unusable sources.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use idem_core::store::StoreError;
use idem_core::{BoxError, Delivery, Error, Health, Source, SubscribeOptions};
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Tapped;
use idem_test::tap::Tap;

use super::crashes::schedule;
use super::faulty::Do;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// A database that a test makes unavailable.
#[derive(Clone)]
struct Away {
    away: Arc<AtomicBool>,
    pings: watch::Sender<usize>,
}

impl Away {
    fn new() -> Self {
        Self { away: Arc::new(AtomicBool::new(true)), pings: watch::Sender::new(0) }
    }

    fn hook(&self) -> impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static {
        let Self { away, pings } = self.clone();
        move |method, _| {
            pings.send_if_modified(|pings| {
                *pings += usize::from(method == "ping");
                method == "ping"
            });
            let is_asked = matches!(method, "ping" | "claim" | "insert");
            if is_asked && away.load(Relaxed) {
                Do::Fail(StoreError::Unavailable("the test says so".into()))
            } else {
                Do::Work
            }
        }
    }

    /// Waits until the database was pinged `more` more times.
    async fn asked(&self, more: usize) {
        let mut pings = self.pings.subscribe();
        let enough = *pings.borrow() + more;
        soon(pings.wait_for(|pings| *pings >= enough)).await.unwrap();
    }
}

/// Held deliveries go back once, and are redelivered when the database is back. No attempt is recorded.
pub async fn an_outage_that_is_long_for_the_broker_costs_one_return<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.unsettled_limit(Duration::from_secs(2));
    for name in ["a", "b", "c"] {
        line.publish(Order::ok(name));
    }
    let (away, shown) = (Away::new(), watch::Sender::new(None::<Health>));
    let worker = line.start_over(away.hook(), Settings { health: Some(shown.clone()), ..Settings::default() });
    soon(line.queue.delivered(1)).await;
    assert_eq!(soon(line.queue.returned()).await, 3);
    let health = shown.borrow().clone().unwrap();
    until(async || !health.broker()).await;
    // Nothing is taken from a broker while the database is known to be unavailable.
    let held = line.queue.counts().deliveries;
    away.asked(3).await;
    assert_eq!(line.queue.counts().deliveries, held);
    away.away.store(false, Relaxed);
    // A returned message may have started, so it is stored first. A held batch runs with what it has, and its
    // redelivered messages are then duplicates.
    let again = if line.world.inbox() { 0 } else { held };
    let outcomes = line.outcomes(3 + again).await;
    let known = outcomes.iter().filter(|outcome| matches!(outcome.as_str(), "scheduled 0" | "duplicate")).count();
    let processed = outcomes.iter().filter(|outcome| *outcome == "processed").count();
    assert_eq!((known, processed, outcomes.len()), (again, 3, 3 + again), "{outcomes:?}");
    soon(line.queue.idle()).await;
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.redeliveries, counts.acks), (held + 3, held, 3), "{counts:?}");
    for name in ["a", "b", "c"] {
        assert_eq!(line.effects(name).await, 1);
    }
    assert!(health.is_ready());
    worker.stop().await;
}

/// The worker waits out an outage that is short for the broker, and keeps its deliveries.
pub async fn an_outage_that_is_short_for_the_broker_costs_no_return<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.unsettled_limit(Duration::from_secs(3600));
    line.publish(Order::ok("a"));
    let away = Away::new();
    let worker = line.start_over(away.hook(), Settings::default());
    soon(line.queue.delivered(1)).await;
    away.asked(3).await;
    away.away.store(false, Relaxed);
    line.outcomes(1).await;
    soon(line.queue.idle()).await;
    assert_eq!(line.queue.counts().deliveries, 1);
    worker.stop().await;
}

/// The database answers pings and searches, and starts no message.
pub async fn due_rows_are_not_fetched_again_and_again_in_an_outage<W: World>(world: W) {
    let line = Line::new(world).await;
    for name in ["a", "b", "c"] {
        schedule(&line, "billing", Order::ok(name)).await;
    }
    let (away, fetches) = (Away::new(), Arc::new(AtomicUsize::new(0)));
    let (counted, of, pings) = (fetches.clone(), away.clone(), away.pings.clone());
    let hook = move |method: &'static str, _: &[u8]| {
        match method {
            "ping" => pings.send_modify(|pings| *pings += 1),
            "row_is_fetched" => drop(counted.fetch_add(1, Relaxed)),
            "start" if of.away.load(Relaxed) => return Do::Fail(StoreError::Unavailable("the test says so".into())),
            _ => {}
        }
        Do::Work
    };
    let worker = line.start_over(hook, Settings { inbox_concurrency: 1, ..Settings::default() });
    away.asked(4).await;
    // A row for each end of a pause, and one more beside it.
    let fetches = fetches.load(Relaxed);
    away.away.store(false, Relaxed);
    assert_eq!(line.outcomes(3).await, ["processed"; 3]);
    worker.stop().await;
    assert!(fetches <= 12, "{fetches} fetches");
}

/// A source that is lost after its first opening, and refuses to be opened again until it is repaired.
struct Deleted {
    opened: bool,
    repaired: Arc<AtomicBool>,
}

impl Tap for Deleted {
    type Ack = ();

    async fn subscribe<S: Source>(&mut self, source: &mut S, options: SubscribeOptions) -> Result<(), BoxError> {
        if std::mem::replace(&mut self.opened, true) && !self.repaired.load(Relaxed) {
            return Err(Error::Config("the queue was deleted".to_owned()).into());
        }
        source.subscribe(options).await
    }

    async fn next<S: Source>(&mut self, source: &mut S) -> Result<(Delivery, S::Acker), BoxError> {
        match self.repaired.load(Relaxed) {
            true => source.next().await,
            false => Err("the consumer was cancelled".into()),
        }
    }

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }
}

/// It is no outage, which ends by itself, so the health says why nothing is consumed.
pub async fn a_source_that_refuses_to_open_again_is_an_error_until_it_is_repaired<W: World>(world: W) {
    let line = Line::new(world).await;
    let (repaired, shown) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(None::<Health>));
    let source = Tapped::new(line.queue.clone(), Deleted { opened: false, repaired: repaired.clone() });
    let worker = line.start_at(source, Settings { health: Some(shown.clone()), ..Settings::default() });
    let health = soon(shown.subscribe().wait_for(Option::is_some)).await.unwrap().clone().unwrap();
    until(async || health.unsubscribed().is_some_and(|why| why == "the queue was deleted")).await;
    assert!(!health.is_ready());
    repaired.store(true, Relaxed);
    line.publish(Order::ok("a"));
    line.outcomes(1).await;
    assert_eq!((health.unsubscribed(), health.is_ready()), (None, true));
    worker.stop().await;
}

/// A source that opens, and fails at each first delivery.
struct Useless {
    opened: watch::Sender<usize>,
}

impl Tap for Useless {
    type Ack = ();

    async fn subscribe<S: Source>(&mut self, _: &mut S, _: SubscribeOptions) -> Result<(), BoxError> {
        self.opened.send_modify(|opened| *opened += 1);
        Ok(())
    }

    async fn next<S: Source>(&mut self, _: &mut S) -> Result<(Delivery, S::Acker), BoxError> {
        Err("it fails at the first delivery".into())
    }

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }
}

/// It is opened less and less often, though each opening succeeds.
pub async fn a_useless_source_is_opened_at_growing_intervals<W: World>(world: W) {
    let line = Line::new(world).await;
    let opened = watch::Sender::new(0);
    let source = Tapped::new(line.queue.clone(), Useless { opened: opened.clone() });
    let worker = line.start_at(source, Settings::default());
    let began = Instant::now();
    soon(opened.subscribe().wait_for(|opened| *opened >= 6)).await.unwrap();
    // 100 ms, doubled each time, five times; ten times a second would take half a second to one second.
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    worker.stop().await;
}
