//! Failures outside of handlers. A panic in a user's code costs its message, a panic in one of the worker's tasks ends
//! the worker, and failing gauges cost nothing.

use std::time::Duration;

use idem_core::store::StoreError;
use idem_core::{BackgroundTasks, BoxError, Delivery, Error, Reason, Source, SubscribeOptions};
use tokio::sync::watch;

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::Publication;
use idem_test::tap::{Tap, Tapped};

use super::faulty::Do;
use super::line::{Line, sorted};
use super::orders::{Act, Order};
use super::panicky::PanickyJson;
use super::settings::Settings;

/// A panic in a key or a fingerprint: the message is kept in full, other messages go on, and the source stays open.
pub async fn a_key_or_fingerprint_that_panics_is_a_dead_letter<W: World>(world: W) {
    let line = Line::new(world).await;
    for what in ["key", "fingerprint"] {
        line.publish(Publication::from(Order::ok(what)).header("panics", what));
        line.publish(Order::ok(&format!("behind the {what}")));
    }
    assert_eq!(sorted(line.run(4).await), ["dead: no key", "dead: no key", "processed", "processed"]);
    for row in line.dead().await {
        let panics = row.delivery.headers().get_str("panics").unwrap().to_owned();
        assert_eq!((row.reason, row.deliveries), (Some(Reason::NoKey), 1));
        assert!(row.error.contains(&format!("the {panics} panicked: this {panics} panics")), "{}", row.error);
        assert_eq!(row.delivery.payload(), Publication::from(Order::ok(&panics)).payload());
    }
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.redeliveries, counts.acks), (4, 0, 4), "the source was opened once");
}

/// The message cannot be decoded, or has failed once; other messages go on.
pub async fn a_codec_or_an_extractor_that_panics_is_a_failure_of_its_message<W: World>(world: W) {
    let line = Line::new(world).await;
    for what in ["codec", "extractor"] {
        line.publish(Publication::from(Order::ok(what)).header("panics", what));
        line.publish(Order::ok(&format!("behind the {what}")));
    }
    let worker = line.start_with_codec(PanickyJson, Settings::once());
    let outcomes = sorted(line.outcomes(4).await);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(outcomes, ["dead: exhausted", "dead: undecodable", "processed", "processed"]);
    for row in line.dead().await {
        let panics = row.delivery.headers().get_str("panics").unwrap();
        assert!(row.error.contains(&format!("this {panics} panics")), "{}", row.error);
        assert_eq!((line.desk.runs(panics), line.effects(panics).await), (0, 0));
    }
}

/// A message that does not run drops its parameters all the same, and harms nobody.
pub async fn a_copy_whose_parameter_panics_as_it_is_dropped_is_a_duplicate<W: World>(world: W) {
    let line = Line::new(world).await;
    let order = || Order::new("a", &[Act::Wait]);
    line.publish(order());
    let worker = line.start();
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.publish(Publication::from(order()).header("panics", "drop"));
    soon(line.queue.delivered(2)).await;
    line.desk.go.send_replace(true);
    let outcomes = sorted(line.outcomes(2).await);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(outcomes, ["duplicate", "processed"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 1));
}

/// Its first message fails, so the others are dropped without having been called.
pub async fn a_batch_drops_messages_that_panic_and_goes_on<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("fails", &[Act::Fail]));
    for id in ["first", "second"] {
        line.publish(Publication::from(Order::ok(id)).header("panics", "drop"));
    }
    line.publish(Order::ok("other"));
    let settings = Settings { concurrency: 1, linger: Duration::from_millis(300), ..Settings::once() };
    assert_eq!(
        sorted(line.run_with(settings, 4).await),
        ["dead: exhausted", "dead: exhausted", "dead: exhausted", "processed"]
    );
    assert_eq!(line.effects("other").await, 1);
}

/// The outcome stands, and the lanes go on.
pub async fn an_observer_that_panics_costs_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    for n in 0..3 {
        line.publish(Publication::from(Order::ok(&n.to_string())).header("panics", "observer"));
    }
    assert_eq!(line.run_with(Settings { concurrency: 1, ..Settings::default() }, 3).await, ["processed"; 3]);
    assert_eq!(line.reports(), ["orders 0: processed", "orders 1: processed", "orders 2: processed"]);
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.acks), (3, 3));
}

/// A task that a source runs in the background.
pub async fn a_background_task_that_panics_ends_the_worker_with_an_error<W: World>(world: W) {
    let line = Line::new(world).await;
    let source = Tapped::new(line.queue.clone(), PanickyBackground(BackgroundTasks::default()));
    let ended = soon(line.start_at(source, Settings::default()).ended()).await;
    let Err(Error::Panicked { task, text, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!((task, text.as_str()), ("receiving", "this background task panics"));
}

struct PanickyBackground(BackgroundTasks);

impl Tap for PanickyBackground {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }

    async fn subscribe<S: Source>(&mut self, source: &mut S, options: SubscribeOptions) -> Result<(), BoxError> {
        self.0.spawn(async { panic!("this background task panics") });
        source.subscribe(options).await
    }

    async fn next<S: Source>(&mut self, source: &mut S) -> Result<(Delivery, S::Acker), BoxError> {
        tokio::select! {
            never = self.0.panicked() => match never {},
            next = source.next() => next,
        }
    }
}

/// Each task by itself, at the first panic, with the name of the task.
pub async fn a_task_that_panics_ends_the_worker_with_an_error<W: World>(world: W) {
    let line = Line::new(world).await;
    for (method, task) in [("poll_due", "inbox"), ("stats", "gauges")] {
        let hook = move |at: &str, _: &[u8]| if at == method { Do::Panic } else { Do::Work };
        let ended = soon(line.start_over(hook, Settings::default()).ended()).await;
        let Err(Error::Panicked { task: named, text, .. }) = ended else { panic!("{method}: {ended:?}") };
        assert_eq!((named, text.as_str()), (task, "the store panics"));
    }
}

/// The worker's deliveries are not settled, and the next worker processes them.
pub async fn a_panic_on_a_message_ends_the_worker_and_loses_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    let hook = |at: &str, key: &[u8]| if at == "claim" && key == b"a" { Do::Panic } else { Do::Work };
    let ended = soon(line.start_over(hook, Settings::default()).ended()).await;
    assert!(matches!(ended, Err(Error::Panicked { .. })), "{ended:?}");
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.acks, counts.ready), (1, 0, 1), "it was tried once, and is back");
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!(line.effects("a").await, 1);
}

/// Gauges that fail or hang are not an outage: nothing waits for them, and the database is not pinged, not even once
/// they were given up.
pub async fn gauges_that_fail_or_hang_are_no_outage<W: World>(world: W) {
    let line = Line::new(world).await;
    for (n, hangs) in [false, true].into_iter().enumerate() {
        let (ended, pinged) = (watch::Sender::new(false), watch::Sender::new(false));
        let (end, ping) = (ended.clone(), pinged.clone());
        let hook = move |at: &str, _: &[u8]| match at {
            "stats" if hangs => Do::HangWith(Box::new(Ends(end.clone()))),
            "stats" => {
                end.send_replace(true);
                Do::Fail(StoreError::Unavailable("too slow".into()))
            }
            // An outage would never end.
            "ping" => {
                ping.send_replace(true);
                Do::Hang
            }
            _ => Do::Work,
        };
        let worker = line.start_over(hook, Settings::default());
        soon(ended.subscribe().wait_for(|ended| *ended)).await.unwrap();
        for more in 1..=3 {
            line.publish(Order::ok(&format!("{n} {more}")));
            line.outcomes(3 * n + more).await;
        }
        worker.stop_once_idle(&line.queue).await;
        assert!(!*pinged.borrow());
    }
}

/// Tells when it is dropped.
struct Ends(watch::Sender<bool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}
