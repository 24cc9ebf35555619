//! Handlers with their own timeout, retry policy and codec, beside handlers with those of their worker.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use idem_core::{BoxError, Delivery, HandlerOptions, RetryPolicy, Source, SubscribeOptions, Worker};

use idem_conformance::soon;
use idem_test::tap::Tap;
use idem_test::{Publication, Tapped};

use super::handlers::NaturalOrders;
use super::line::Line;
use super::orders::{Act, Order, Orders};
use super::schemas::{Answer, BACKWARDS, Registry};
use super::settings::Settings;
use idem_conformance::store::World;

/// Shorter than the time that [`Act::Lasts`] takes.
const SHORT: Duration = Duration::from_secs(2);

const LONG: Duration = Duration::from_secs(60);

fn refund(id: &str, acts: &[Act]) -> Publication {
    Publication::from(Order::new(id, acts)).event_type("Refund")
}

/// The run of one handler ends after its own timeout, from the broker and from the inbox. Another one of the same worker
/// may run for longer.
pub async fn the_timeout_of_a_handler_ends_only_it<W: World>(world: W) {
    let line = Line::new(world).await;
    let own = HandlerOptions::new().timeout(SHORT);
    let worker = line.worker().handler_options::<Orders<W>>(own).handler::<Orders<W, true>>();
    let worker = line.run_until_stopped(worker, Settings { handler_timeout: LONG, ..Settings::default() });
    line.publish(Order::new("a", &[Act::Hang, Act::Hang, Act::Permanent]));
    assert_eq!(line.outcomes(3).await, ["scheduled 1", "scheduled 2", "dead: permanent"]);
    line.publish_raw(refund("b", &[Act::Lasts]));
    assert_eq!(line.outcomes(4).await[3], "processed");
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("b"), line.effects("refund b").await, line.effects("a").await), (1, 1, 0));
}

/// The timeout of its own may be longer than the worker's, also for a single statement.
pub async fn a_handler_may_run_for_longer_than_its_worker_allows_the_others<W: World>(world: W) {
    let line = Line::new(world).await;
    let own = HandlerOptions::new().timeout(LONG);
    let worker = line.worker().handler::<Orders<W>>().handler_options::<Orders<W, true>>(own);
    let worker = line.run_until_stopped(worker, Settings { handler_timeout: SHORT, ..Settings::default() });
    line.publish_raw(refund("b", &[Act::Lasts]));
    assert_eq!(line.outcomes(1).await, ["processed"]);
    line.publish_raw(refund("c", &[Act::Fail, Act::Lasts]));
    assert_eq!(line.outcomes(3).await[1..], ["scheduled 1", "processed"]);
    line.publish(Order::new("a", &[Act::Hang, Act::Permanent]));
    assert_eq!(line.outcomes(5).await[3..], ["scheduled 1", "dead: permanent"]);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("b"), line.desk.runs("c"), line.effects("a").await), (1, 2, 0));
}

/// Each call has the timeout of its handler, and the transaction leaves room for the longest.
pub async fn in_a_batch_each_handler_has_its_own_timeout<W: World>(world: W) {
    let line = Line::new(world).await;
    let own = HandlerOptions::new().timeout(LONG);
    let worker = line.worker().handler::<Orders<W>>().handler_options::<Orders<W, true>>(own);
    line.publish_raw(refund("before", &[Act::Wait]));
    let settings = Settings { handler_timeout: SHORT, concurrency: 1, ..Settings::default() };
    let worker = line.run_until_stopped(worker, settings);
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.publish(Order::ok("a"));
    line.publish_raw(refund("b", &[Act::Lasts]));
    line.publish(Order::ok("c"));
    // It takes deliveries one by one, so it holds all those before the last one handed out.
    line.publish(Order::ok("after"));
    soon(line.queue.delivered(5)).await;
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(5).await, ["processed"; 5]);
    worker.stop_once_idle(&line.queue).await;
    for id in ["a", "b", "c"] {
        assert_eq!(line.desk.runs(id), 1, "{id}, which ran with the others: {:?}", line.desk.log());
    }
}

/// Also from the inbox. Another handler has the worker's policy.
pub async fn the_retry_policy_of_a_handler_decides_attempts_and_delay<W: World>(world: W) {
    let line = Line::new(world).await;
    let own = RetryPolicy::new().max_attempts(2).min_delay(Duration::from_millis(1));
    let twice =
        line.worker().handler_options::<Orders<W>>(HandlerOptions::new().retry(own)).handler::<Orders<W, true>>();
    let worker_of_two = line.run_until_stopped(twice, Settings::default());
    line.publish(Order::new("a", &[Act::Fail]));
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "dead: exhausted"]);
    line.publish_raw(refund("b", &[Act::Fail]));
    let outcomes = line.outcomes(7).await;
    assert_eq!(outcomes[2..], ["scheduled 1", "scheduled 2", "scheduled 3", "scheduled 4", "dead: exhausted"]);
    worker_of_two.stop().await;

    let hour = RetryPolicy::new().min_delay(Duration::from_secs(3600));
    let late =
        line.worker().handler_options::<Orders<W>>(HandlerOptions::new().retry(hour)).handler::<Orders<W, true>>();
    let worker_of_late = line.run_until_stopped(late, Settings::default());
    line.publish(Order::new("c", &[Act::Fail]));
    assert_eq!(line.outcomes(8).await[7], "scheduled 1");
    worker_of_late.stop_once_idle(&line.queue).await;
    let due = line.scheduled().await[0].run_at.duration_since(SystemTime::now()).unwrap();
    assert!(due > Duration::from_secs(3000), "due in {due:?}");
}

/// It also prepares with it. Another handler decodes with the worker's codec.
pub async fn the_codec_of_a_handler_decodes_for_it_only<W: World>(world: W) {
    let line = Line::new(world).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Known);
    let own = HandlerOptions::new().codec(registry.codec());
    let worker = line.worker().handler_options::<Orders<W>>(own).handler::<Orders<W, true>>();
    let worker = line.run_until_stopped(worker, Settings::default());
    let backwards = |order: Order| {
        let mut payload = Publication::from(order).payload().to_vec();
        payload.reverse();
        Publication::new(payload).content_type(BACKWARDS).header("schema", "v1")
    };
    line.publish(backwards(Order::new("a", &[Act::Fail, Act::Ok])));
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    line.publish_raw(refund("b", &[Act::Ok]));
    assert_eq!(line.outcomes(3).await[2], "processed");
    line.publish_raw(backwards(Order::ok("c")).event_type("Refund"));
    assert_eq!(line.outcomes(4).await[3], "dead: undecodable");
    worker.stop().await;
    assert_eq!((line.effects("a").await, line.effects("refund b").await, registry.times_asked()), (1, 1, 1));
}

/// It would end every run.
pub async fn a_timeout_of_zero_refuses_the_start<W: World>(world: W) {
    let line = Line::new(world).await;
    let own = HandlerOptions::new().timeout(Duration::ZERO);
    let worker = line.worker().handler::<Orders<W>>().handler_options::<Orders<W, true>>(own);
    let refused = worker.run_until(std::future::ready(())).await.unwrap_err().to_string();
    for part in ["\"refunds\"", "zero", "HandlerOptions::timeout"] {
        assert!(refused.contains(part), "{part:?} is not in {refused}");
    }
}

/// Records with what the source is subscribed.
struct Seen(Arc<Mutex<Option<SubscribeOptions>>>);

impl Tap for Seen {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }

    async fn subscribe<S: Source>(&mut self, source: &mut S, options: SubscribeOptions) -> Result<(), BoxError> {
        *self.0.lock().unwrap() = Some(options.clone());
        source.subscribe(options).await
    }
}

impl Seen {
    /// Returns the options of the last subscription.
    async fn options(seen: &Mutex<Option<SubscribeOptions>>) -> SubscribeOptions {
        soon(async {
            loop {
                if let Some(options) = seen.lock().unwrap().take() {
                    return options;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }
}

/// The source compares it with the time after which its broker takes a delivery back.
pub async fn the_longest_timeout_is_reported_to_the_source<W: World>(world: W) {
    let line = Line::new(world).await;
    let seen = Arc::new(Mutex::new(None));
    for (own, longest) in [(LONG, LONG), (SHORT / 2, SHORT)] {
        let source = Tapped::new(line.queue.clone(), Seen(seen.clone()));
        let worker = Worker::new("billing", line.store.clone(), source).state(line.desk.clone());
        let worker =
            worker.handler_options::<Orders<W>>(HandlerOptions::new().timeout(own)).handler::<Orders<W, true>>();
        let worker = line.run_until_stopped(worker, Settings { handler_timeout: SHORT, ..Settings::default() });
        assert_eq!(Seen::options(&seen).await.handler_timeout, longest);
        worker.stop().await;
    }
}

/// If its place in the broker is gone, a source must not start like a new one where messages were handled before.
pub async fn whether_the_worker_has_run_before_is_reported_to_the_source<W: World>(world: W) {
    let line = Line::new(world).await;
    let seen = Arc::new(Mutex::new(None));
    for (starts, has_history) in [false, true].into_iter().enumerate() {
        let source = Tapped::new(line.queue.clone(), Seen(seen.clone()));
        let worker = line.start_at(source, Settings::default());
        assert_eq!(Seen::options(&seen).await.has_history, has_history);
        line.publish(Order::ok(&starts.to_string()));
        line.outcomes(starts + 1).await;
        worker.stop().await;
    }
}

/// The messages of a natural handler leave no claims, which tell it of other handlers. Those of a batch neither: there are two
/// before the worker starts, which waits for more.
pub async fn whether_a_natural_handler_has_run_before_is_reported_to_the_source<W: World>(world: W) {
    let line = Line::new(world).await;
    let seen = Arc::new(Mutex::new(None));
    for (has_history, messages) in [(false, 0), (false, 2), (true, 0)] {
        (0..messages).for_each(|n| line.publish_natural(Order::ok(&n.to_string())));
        let source = Tapped::new(line.queue.clone(), Seen(seen.clone()));
        let worker = Worker::new("billing", line.store.clone(), source).state(line.desk.clone());
        let settings = Settings { concurrency: 1, linger: Duration::from_millis(300), ..Settings::default() };
        let worker = line.run_until_stopped(worker.handler::<NaturalOrders<W>>(), settings);
        assert_eq!(Seen::options(&seen).await.has_history, has_history);
        line.outcomes(messages).await;
        worker.stop().await;
    }
}
