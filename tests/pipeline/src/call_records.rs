//! Answers of the database that are lost while calls are fetched, recorded and dated.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use idem_core::store::{Replayed, StoreError};
use idem_core::{Key, Reason};

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::provider::Fault;

use super::faulty::Do;
use super::paying::Paying;
use super::settings::Settings;

/// Loses the first answer of this method.
fn loses(method: &'static str) -> impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static {
    let lost = AtomicBool::new(false);
    move |called, _| {
        if called != method || lost.swap(true, Relaxed) {
            return Do::Work;
        }
        Do::Fail(StoreError::ConnectionLost("the answer is lost".into()))
    }
}

/// It is kept, and is used.
pub async fn an_answer_whose_record_gets_no_answer_is_used<W: World>(world: W) {
    let paying = Paying::<W, false, false>::new(world).await;
    paying.publish("a", []);
    let worker = paying.start_over(loses("call_is_recorded"));
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!((paying.counts("a").await, paying.0.dead().await.len()), ((1, 1, 1), 0));
}

/// The rows are found by their token, and the first call of each is known: a provider without keys is called once.
pub async fn calls_whose_fetch_gets_no_answer_are_made_once<W: World>(world: W) {
    let paying = Paying::<W, false, false>::new(world).await;
    for id in ["a", "b"] {
        paying.publish(id, []);
    }
    let worker = paying.start_over(loses("fetched_calls"));
    for id in ["a", "b"] {
        paying.completed(id).await;
    }
    worker.stop().await;
    for id in ["a", "b"] {
        assert_eq!(paying.counts(id).await, (1, 1, 1), "{id}");
    }
    assert!(paying.0.dead().await.is_empty());
}

/// A process that ends after the provider has said that there was no call has not made another one yet: it is asked again.
pub async fn a_crash_before_a_call_is_dated_anew_asks_again<W: World>(world: W) {
    let paying = Paying::<W, false, true>::new(world).await;
    paying.publish("a", [Fault::LoseRequest]);
    paying.fails_once().await;
    let (worker, mut seen) = paying.start_that_hangs_in("date_call");
    soon(seen.wait_for(|seen| *seen)).await.unwrap();
    worker.crash().await;
    assert_eq!(paying.counts("a").await.1, 1, "its date was not written");
    paying.time_passes(Duration::from_secs(600)).await;
    paying.completes("a").await;
    assert_eq!((paying.counts("a").await, paying.0.desk.runs("question a")), ((1, 2, 1), 2));
}

/// It is written again, and the call is made.
pub async fn a_call_whose_new_date_gets_no_answer_is_made_once<W: World>(world: W) {
    let paying = Paying::<W, false, true>::new(world).await;
    paying.publish("a", [Fault::LoseRequest]);
    paying.fails_once().await;
    let worker = paying.start_over(loses("call_is_dated"));
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!((paying.counts("a").await, paying.0.desk.runs("question a")), ((1, 2, 1), 1));
    assert!(paying.0.dead().await.is_empty());
}

/// It could not be sent, so nothing is in doubt, also where the provider knows no keys: a replay calls, and a discard deletes.
pub async fn a_message_that_cannot_be_called_for_is_not_in_doubt<W: World>(world: W) {
    let paying = Paying::<W, false, false>::new(world).await;
    for id in ["a", "b"] {
        paying.publish(id, []);
    }
    let (worker, _) = paying.start_that_hangs_in("fetch_calls");
    soon(paying.0.queue.idle()).await;
    worker.crash().await;
    let worker = paying.start_with(Settings { max_payload: 2, ..Settings::default() });
    until(async || paying.0.dead().await.len() >= 2).await;
    worker.stop().await;
    for row in paying.0.dead().await {
        assert_eq!((row.reason, row.called_at), (Some(Reason::TooLarge), None));
        match row.identity.key == Key::of("a").unwrap() {
            true => assert_eq!(paying.0.operator().replay(row.id).await.unwrap(), Replayed::Due),
            false => assert!(paying.0.operator().discard(row.id).await.unwrap()),
        }
    }
    paying.completes("a").await;
    assert_eq!((paying.counts("a").await, paying.counts("b").await), ((1, 1, 1), (0, 0, 0)));
}
