//! Processes that end before, in and behind an external call.

use idem_core::Reason;

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::provider::Fault;

use super::orders::Act;
use super::paying::{MINUTE, Paying, order};

/// Before the row is committed, the broker delivers again; so it does before the fetch, and the row is there.
pub async fn a_crash_before_the_fetch_calls_once<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", []);
    for method in ["insert", "fetch_calls"] {
        paying.crash_in(method).await;
    }
    let worker = paying.start();
    paying.completed("a").await;
    worker.stop_once_idle(&paying.0.queue).await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
}

/// It may have been made: it is repeated under its key.
pub async fn a_crash_before_the_call_repeats_it_under_its_key<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", []);
    paying.crash_in("fetched_calls").await;
    let row = paying.row(|row| row.called_at.is_some()).await;
    assert_eq!((row.calls, paying.counts("a").await.1), (Some(1), 0));
    paying.time_passes(MINUTE).await;
    paying.completes("a").await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
    assert_eq!(paying.provider().requests("a"), [row.provider_key.map(|key| key.to_string())]);
}

/// The provider has charged, and answers as before.
pub async fn a_crash_in_the_call_repeats_it_under_its_key<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::Hang]);
    let worker = paying.start();
    until(async || paying.provider().charged("a") != 0).await;
    worker.crash().await;
    paying.time_passes(MINUTE).await;
    paying.completes("a").await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    assert!(paying.has_one_key("a"));
}

/// The answer was there, and not yet kept.
pub async fn a_crash_behind_the_call_repeats_it_under_its_key<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", []);
    paying.crash_in("record_call").await;
    assert_eq!(paying.counts("a").await, (1, 1, 0));
    paying.time_passes(MINUTE).await;
    paying.completes("a").await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    assert!(paying.has_one_key("a"));
}

/// The answer is kept before the completion begins, so a process that ends in it calls nobody again.
pub async fn a_crash_in_the_completion_calls_nobody_again<W: World>(world: W) {
    let paying = Paying::<W, false, false>::new(world).await;
    paying.publish_order(order("a", &[Act::Wait, Act::Ok]), []);
    let worker = paying.start();
    soon(paying.0.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    worker.crash().await;
    let row = paying.0.scheduled().await.remove(0);
    assert_eq!(
        (row.crash_count, row.calls, row.answer.is_some()),
        (1, None, true),
        "it is an orphaned row like any other"
    );
    paying.time_passes(MINUTE).await;
    paying.completes("a").await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
}

/// Whatever ends the process ten times while a call has begun is not called for again by itself.
pub async fn a_call_that_never_has_a_result_is_dead_as_crashed<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", []);
    paying.crash_in("fetched_calls").await;
    let inbox = paying.0.world.own("inbox_messages");
    paying.0.world.run(&format!("UPDATE {inbox} SET crash_count = 10")).await;
    paying.time_passes(MINUTE).await;
    let worker = paying.start();
    until(async || !paying.0.dead().await.is_empty()).await;
    let dead = paying.0.one_dead().await;
    assert_eq!((dead.reason, paying.counts("a").await.1), (Some(Reason::Crashed), 0));
    paying.0.operator().replay(dead.id).await.unwrap();
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
    assert_eq!(paying.provider().requests("a"), [dead.provider_key.map(|key| key.to_string())]);
}
