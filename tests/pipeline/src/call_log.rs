//! The log of calls: those that cannot begin in time or in a drain, whose rows are snoozed, and those that may have had two
//! effects.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use idem_core::store::{Remedies, Resolution, StoreError, next_provider_key};
use idem_core::{Codec, Json, Worker};
use tokio::runtime::Builder;
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_conformance::{Captured, captured, subscribe};
use idem_conformance::{soon, until};
use idem_test::provider::Fault;
use idem_test::tapped_store::{Over, TappedStore};

use super::faulty::{Do, Faulty};
use super::orders::Order;
use super::paying::{Paying, Pays};
use super::running::Running;
use super::schemas::{Answer, Registry, of_schema, patient};

/// Orders that are paid for at a provider that knows no keys, and cannot be asked.
type Once<W> = Paying<W, false, false>;

/// Too long for a call to begin.
const LATE: Duration = Duration::from_secs(6);

/// Almost too long.
const ALMOST_LATE: Duration = Duration::from_millis(4500);

/// Runs a case on one thread. Its log has what all tasks of its workers say.
pub(super) async fn with_log<W: World>(world: W, case: impl AsyncFnOnce(W, Captured) + Send + 'static) {
    let run = move || {
        let (log, subscriber) = captured();
        let _log = subscribe(subscriber);
        Builder::new_current_thread().enable_all().build().unwrap().block_on(case(world, log));
    };
    if let Err(failed) = tokio::task::spawn_blocking(run).await {
        resume_unwind(failed.into_panic());
    }
}

/// The lines that contain this.
pub(super) fn lines(log: &Captured, part: &str) -> Vec<String> {
    log.to_string().lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// Waits until a line contains this.
async fn logged(log: &Captured, part: &str) {
    until(async || !lines(log, part).is_empty()).await;
}

/// Asserts that the first line that contains `parts[0]` is a warning, and contains the others.
fn warns(log: &Captured, parts: &[&str]) {
    let logged = lines(log, parts[0]);
    let line = logged.first().unwrap_or_else(|| panic!("{:?} is not in {log}", parts[0]));
    for part in parts.iter().chain(&["WARN"]) {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

/// Starts a worker with this codec, whose first statements that fetch or date calls have had their connections for so long.
fn start<W: World, const ASKS: bool>(
    paying: &Paying<W, false, ASKS>,
    codec: impl Codec<Order>,
    late: &[Duration],
) -> Running {
    let store = TappedStore::new(paying.0.store.clone(), Faulty::with_late_calls(late));
    let worker = Worker::new("billing", store, paying.0.queue.clone()).state(paying.0.desk.clone());
    let worker = worker.codec(codec).handler::<Over<Pays<W, false, ASKS>, W::Store, Faulty>>();
    paying.0.run_until_stopped(worker, patient())
}

/// A message that is stored, and for which the codec of the next worker has to prepare.
async fn stored<W: World>(world: W) -> Once<W> {
    let paying = Once::<W>::new(world).await;
    paying.0.publish(of_schema("v1", Order::ok("a")));
    let (worker, _) = paying.start_that_hangs_in("fetch_calls");
    soon(paying.0.queue.idle()).await;
    worker.crash().await;
    paying
}

/// It is still the first call, which a provider without keys can be sent. The log says so once a minute.
pub async fn a_call_that_begins_too_late_is_logged_and_begins_later<W: World>(world: W) {
    with_log(world, async |world: W, log: Captured| {
        let paying = Once::<W>::new(world).await;
        paying.publish("a", [Fault::Wait]);
        let worker = start(&paying, Json, &[LATE, LATE]);
        soon(paying.provider().waits(1)).await;
        let row = paying.0.scheduled().await.remove(0);
        assert_eq!((row.calls, row.attempts), (Some(1), 0), "those that were snoozed count for nothing");
        paying.provider().release();
        paying.completed("a").await;
        worker.stop().await;
        assert_eq!(paying.counts("a").await, (1, 1, 1));
        let text = "a call was not begun within five seconds of the fetch of its message";
        warns(&log, &[text, &format!(" id={}", row.id)]);
        assert_eq!(lines(&log, text).len(), 1, "{log}");
    })
    .await;
}

/// So does the one that follows once the provider has said that there was none: its lease counts from when it was dated.
pub async fn a_call_behind_a_question_that_begins_too_late_begins_later<W: World>(world: W) {
    with_log(world, async |world: W, log: Captured| {
        let paying = Paying::<W, false, true>::new(world).await;
        paying.publish("a", [Fault::LoseRequest]);
        paying.fails_once().await;
        let worker = start(&paying, Json, &[Duration::ZERO, LATE]);
        paying.completed("a").await;
        worker.stop().await;
        assert_eq!((paying.counts("a").await, paying.0.desk.runs("question a")), ((1, 2, 1), 1));
        warns(&log, &["a call was not begun within five seconds of the fetch of its message"]);
    })
    .await;
}

/// Otherwise the lease would end while it is held, and the next worker would take the message for one that may have been called.
pub async fn a_preparation_that_outlasts_the_lease_of_a_call_gives_its_row_back<W: World>(world: W) {
    with_log(world, async |world: W, log: Captured| {
        let paying = stored(world).await;
        let registry = Registry::default();
        registry.answers("v1", Answer::Hang);
        let worker = start(&paying, registry.codec(), &[ALMOST_LATE]);
        registry.asked(1).await;
        let row = paying.row(|row| row.locked_by.is_none()).await;
        assert_eq!((row.calls, row.called_at, row.attempts), (Some(0), None, 0));
        registry.answers("v1", Answer::Known);
        paying.completed("a").await;
        worker.stop().await;
        assert_eq!(paying.counts("a").await, (1, 1, 1));
        warns(
            &log,
            &["it takes longer than the lease of a call", "source=\"orders\"", "tries=1", "parked and retried"],
        );
    })
    .await;
}

/// It could be cut off by the end of the drain. Its row is left as if it had not been fetched.
pub async fn a_drain_behind_the_fetch_of_a_call_makes_none<W: World>(world: W) {
    with_log(world, async |world: W, log: Captured| {
        let paying = Once::<W>::new(world).await;
        paying.publish("a", []);
        let (open, gate) = watch::channel(false);
        let worker = paying.start_over(move |method, _| match method {
            "fetched_calls" => Do::Wait(gate.clone()),
            _ => Do::Work,
        });
        paying.row(|row| row.calls == Some(1)).await;
        let worker = worker.shut_down();
        logged(&log, "the worker drains").await;
        open.send_replace(true);
        soon(worker).await.unwrap().unwrap();
        let row = paying.0.scheduled().await.remove(0);
        assert_eq!((row.calls, row.called_at, paying.counts("a").await.1), (Some(0), None, 0));
        paying.completes("a").await;
        assert_eq!(paying.counts("a").await, (1, 1, 1));
    })
    .await;
}

/// There may be a second effect by then, for which nobody would look.
pub async fn an_answer_under_a_key_that_was_replaced_is_logged<W: World>(world: W) {
    with_log(world, async |world: W, log: Captured| {
        let paying = Once::<W>::new(world).await;
        paying.publish("a", [Fault::Wait]);
        let worker = paying.start();
        soon(paying.provider().waits(1)).await;
        // A person is in a hurry, and finds nothing at the provider.
        paying.0.world.run(&Remedies::of(&paying.0.store, "billing", "pays", "").dead_letter).await;
        let dead = paying.0.one_dead().await;
        let key = dead.provider_key.unwrap();
        assert!(paying.0.operator().resolve(dead.id, key, Resolution::CallAgain).await.unwrap());
        paying.provider().release();
        let text = "a call has returned under a key that an operator has replaced";
        logged(&log, text).await;
        worker.stop().await;
        let line = lines(&log, text).remove(0);
        let keys = [key, next_provider_key(key)].map(|key| key.to_string());
        assert!(line.contains("ERROR") && keys.iter().all(|key| line.contains(key)), "{line}");
    })
    .await;
}

/// It was completed before the record of the answer was confirmed: with that answer, for all that its worker knows, or with one
/// of another call.
pub async fn an_answer_whose_message_is_gone_is_logged<W: World>(world: W) {
    with_log(world, async |world: W, log: Captured| {
        let paying = Once::<W>::new(world).await;
        paying.publish("a", []);
        let (open, gate) = watch::channel(false);
        let lost = AtomicBool::new(false);
        let worker = paying.start_over(move |method, _| match method {
            "call_is_recorded" if !lost.swap(true, Relaxed) => {
                Do::Fail(StoreError::ConnectionLost("the answer is lost".into()))
            }
            "record_call" if lost.load(Relaxed) => Do::Wait(gate.clone()),
            _ => Do::Work,
        });
        paying.completed("a").await;
        open.send_replace(true);
        let text = "the answer of a call was not confirmed, because its message was completed meanwhile";
        logged(&log, text).await;
        worker.stop().await;
        warns(&log, &[text, "there may be two effects"]);
        assert_eq!(paying.counts("a").await, (1, 1, 1));
    })
    .await;
}

/// Without a delay it would be fetched and prepared for as fast as the database allows, and nobody would know.
pub async fn a_codec_that_forgets_its_preparation_for_a_call_is_logged<W: World>(world: W) {
    with_log(world, async |world: W, log: Captured| {
        let (paying, text) = (stored(world).await, "although the last one succeeded");
        let registry = Registry::default();
        registry.answers("v1", Answer::Forgotten);
        let worker = start(&paying, registry.codec(), &[]);
        logged(&log, text).await;
        registry.answers("v1", Answer::Known);
        paying.completed("a").await;
        worker.stop().await;
        assert_eq!(paying.counts("a").await, (1, 1, 1));
        warns(&log, &[text, "source=\"orders\"", "`decode` must use"]);
        assert!(registry.times_asked() < 10, "{}", registry.times_asked());
    })
    .await;
}
