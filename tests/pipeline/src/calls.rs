//! External calls: one charge and one effect for each message.

use std::time::{Duration, SystemTime};

use idem_core::Reason;
use idem_core::store::{Replayed, Resolution};

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;
use idem_test::provider::Fault;

use super::orders::{Act, Order};
use super::paying::{MINUTE, Paying, Pays, PaysItself, Starts, attempts, order};
use super::settings::Settings;

/// It is charged once, and completes once with the answer, also if copies of it come.
pub async fn a_message_calls_once_and_completes_with_the_answer<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    for _ in 0..3 {
        paying.publish("a", []);
    }
    paying.publish("b", []);
    let worker = paying.start();
    let outcomes = paying.0.outcomes(if paying.0.world.inbox() { 4 } else { 6 }).await;
    assert_eq!(outcomes.iter().filter(|it| *it == "processed").count(), 2, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|it| *it == "duplicate").count(), 2, "{outcomes:?}");
    assert!(!outcomes.contains(&"scheduled 1".to_owned()), "the handler has run without an answer: {outcomes:?}");
    paying.publish("a", []);
    assert_eq!(paying.0.outcomes(outcomes.len() + 1).await.last().unwrap(), "duplicate");
    worker.stop().await;
    for id in ["a", "b"] {
        assert_eq!(paying.counts(id).await, (1, 1, 1), "{id}");
    }
    assert_eq!(paying.0.effects("a 1").await + paying.0.effects("a 2").await, 1);
    assert!(paying.0.scheduled().await.is_empty() && paying.0.dead().await.is_empty());
}

/// It is started by another handler, in its transaction.
pub async fn a_local_message_calls_once<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    let worker = paying.0.worker().handler::<Starts<W>>().handler::<Pays<W, true, true>>();
    let worker = paying.0.run_until_stopped(worker, Settings::default());
    for _ in 0..2 {
        paying.0.publish_raw(Publication::from(Order::ok("a")).event_type("Start"));
    }
    paying.completed("a").await;
    worker.stop_once_idle(&paying.0.queue).await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
    assert!(paying.0.scheduled().await.is_empty());
}

/// Many at once, some of which fail in their call or in their completion.
pub async fn each_of_many_messages_is_charged_once<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    for n in 0..40 {
        let faults = if n % 5 == 1 { vec![Fault::Busy, Fault::Busy] } else { Vec::new() };
        let acts: &[Act] = if n % 7 == 2 { &[Act::Fail, Act::Ok] } else { &[Act::Ok] };
        paying.publish_order(order(&n.to_string(), acts), faults);
    }
    let worker = paying.start_with(Settings { call_concurrency: 8, ..Settings::default() });
    soon(paying.0.queue.idle()).await;
    until(async || (0..40).all(|n| paying.0.desk.runs(&n.to_string()) != 0) && paying.0.scheduled().await.is_empty())
        .await;
    worker.stop().await;
    for n in 0..40 {
        let id = n.to_string();
        let requests = if n % 5 == 1 { 3 } else { 1 };
        assert_eq!(paying.counts(&id).await, (1, requests, 1), "{n}");
        assert!(paying.has_one_key(&id));
    }
    assert!(paying.0.desk.most_at_once() <= 8);
    assert!(paying.0.dead().await.is_empty());
}

/// However many calls wait for the provider, all connections are free. SQLite has one writer.
pub async fn a_call_holds_no_transaction_and_no_connection<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    let number = 60;
    for n in 0..number {
        paying.publish(&n.to_string(), [Fault::Wait]);
    }
    let worker = paying.start_with(Settings { call_concurrency: number, ..Settings::default() });
    soon(paying.provider().waits(number)).await;
    let claim = paying.0.world.own("processed_messages");
    paying.0.world.run(&format!("DELETE FROM {claim} WHERE processed_at IS NOT NULL")).await;
    paying.provider().release();
    paying.0.outcomes(if paying.0.world.inbox() { number } else { 2 * number }).await;
    worker.stop().await;
    for n in 0..number {
        assert_eq!(paying.counts(&n.to_string()).await, (1, 1, 1), "{n}");
    }
}

/// No more calls are made at once than the worker is set to, also if more are due when it first looks for them.
pub async fn calls_are_limited<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    for n in 0..6 {
        paying.publish(&n.to_string(), [Fault::Wait]);
    }
    let (worker, look) =
        paying.start_that_waits_in("fetch_calls", Settings { call_concurrency: 2, ..Settings::default() });
    paying.0.outcomes(6).await;
    look.send_replace(true);
    soon(paying.provider().waits(2)).await;
    let begun = paying.0.scheduled().await.iter().filter(|row| row.called_at.is_some()).count();
    paying.provider().release();
    paying.0.outcomes(12).await;
    worker.stop().await;
    assert_eq!((begun, paying.0.desk.most_at_once()), (2, 2));
}

/// A bug in the completion never repeats a charge.
pub async fn a_completion_that_fails_keeps_its_answer<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish_order(order("a", &[Act::Fail, Act::Panic, Act::Rollback]).by_attempt(), []);
    paying.publish_order(order("b", &[Act::Fail, Act::Fail, Act::Ok]).by_attempt(), []);
    let worker = paying.start_with(attempts(4));
    until(async || !paying.0.dead().await.is_empty() && paying.counts("b").await.2 != 0).await;
    assert_eq!(paying.counts("b").await, (1, 1, 1));
    let dead = paying.0.one_dead().await;
    assert_eq!((dead.reason, dead.answer.is_some()), (Some(Reason::RolledBack), true));
    assert_eq!(paying.counts("a").await, (1, 1, 0));
    let runs = paying.0.desk.runs("a");
    assert_eq!(paying.0.operator().replay(dead.id).await.unwrap(), Replayed::Due);
    until(async || paying.0.desk.runs("a") != runs && !paying.0.dead().await.is_empty()).await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 1, 0), "a replay completes, and calls nobody");
}

/// Its effects may stand, so only an operator lets it complete again, with the answer that it had.
pub async fn a_completion_that_commits_keeps_its_answer<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish_order(order("a", &[Act::Commit, Act::Ok]), []);
    let worker = paying.start();
    paying.sees(&["scheduled 0", "dead: committed by its handler"]).await;
    let dead = paying.0.one_dead().await;
    assert_eq!((dead.reason, dead.answer.is_some()), (Some(Reason::Committed), true));
    assert_eq!((dead.call_name.as_deref(), dead.called_at.is_some()), (Some("pay"), true));
    assert_eq!(paying.0.operator().replay_by_force(dead.id).await.unwrap(), Replayed::Due);
    until(async || paying.0.scheduled().await.is_empty()).await;
    worker.stop().await;
    let (charged, requested, completed) = paying.counts("a").await;
    assert_eq!((charged, requested), (1, 1), "nobody is called again");
    assert!(completed >= 1);
}

/// It waits for the calls that were begun, and begins no others.
pub async fn a_drain_waits_for_calls<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::Wait]);
    let worker = paying.start();
    soon(paying.provider().waits(1)).await;
    let worker = worker.shut_down();
    paying.provider().release();
    soon(worker).await.unwrap().unwrap();
    assert_eq!(paying.provider().charged("a"), 1);
    let row = paying.0.scheduled().await.pop();
    assert!(row.is_none_or(|row| row.answer.is_some()), "its answer is kept");
    paying.completes("a").await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
}

/// A call that is cut off by the end of the shutdown timeout is in doubt, and costs no attempt.
pub async fn the_end_of_the_shutdown_timeout_leaves_a_call_in_doubt<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::Hang]);
    let worker = paying.start_with(Settings { drain: Duration::from_millis(50), ..attempts(1) });
    until(async || paying.provider().charged("a") != 0).await;
    worker.stop().await;
    let row = paying.0.scheduled().await.remove(0);
    assert_eq!((row.attempts, row.calls, row.answer.is_none()), (0, Some(0), true));
    assert!(row.called_at.is_some());
    paying.time_passes(MINUTE).await;
    let worker = paying.start_with(attempts(1));
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    assert!(paying.has_one_key("a"));
}

/// It is a dead letter that has not lost its key: with a greater limit, the provider answers as before.
pub async fn an_answer_over_the_limit_is_dead_and_is_asked_for_again<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("large", []);
    let worker = paying.start_with(Settings { max_payload: 50_000, ..Settings::default() });
    paying.sees(&["scheduled 0", "dead: too large"]).await;
    worker.stop().await;
    let dead = paying.0.one_dead().await;
    assert!(dead.error.contains("`.max_payload(..)`") && dead.answer.is_none(), "{}", dead.error);
    assert_eq!(paying.0.operator().replay(dead.id).await.unwrap(), Replayed::Due);
    let worker = paying.start();
    paying.sees(&["scheduled 0", "dead: too large", "processed"]).await;
    worker.stop().await;
    assert_eq!(paying.counts("large").await, (1, 2, 1));
    assert!(paying.has_one_key("large"));
}

/// With an order, what comes behind it waits until it is completed.
pub async fn a_call_keeps_the_order<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::Wait]);
    paying.publish("b", []);
    let worker = paying.start_with(Settings { order: idem_core::DeliveryOrder::Queue, ..Settings::default() });
    soon(paying.provider().waits(1)).await;
    assert!(paying.provider().requests("b").is_empty());
    paying.provider().release();
    paying.completed("b").await;
    worker.stop().await;
    assert_eq!((paying.0.desk.log(), paying.counts("a").await), (vec!["a".to_owned(), "b".to_owned()], (1, 1, 1)));
}

/// An operator who has looked at the provider gives the answer, and nobody is called.
pub async fn an_operator_gives_the_answer<W: World>(world: W) {
    let paying = Paying::<W, false, false>::new(world).await;
    paying.publish_order(Order::ok("a"), [Fault::LoseAnswer]);
    let worker = paying.start();
    paying.sees(&["scheduled 0", "dead: unresolved"]).await;
    let dead = paying.0.one_dead().await;
    let key = dead.provider_key.unwrap().to_string();
    assert!(dead.error.contains(&key) && dead.error.contains("`idem calls resolve`"), "{}", dead.error);
    assert_eq!(paying.0.operator().replay(dead.id).await.unwrap(), Replayed::Unresolved);
    let answer = Resolution::answer(&serde_json::json!({ "number": "1" })).unwrap();
    assert!(paying.0.operator().resolve(dead.id, dead.provider_key.unwrap(), answer).await.unwrap());
    paying.sees(&["scheduled 0", "dead: unresolved", "processed"]).await;
    worker.stop().await;
    assert_eq!((paying.counts("a").await, paying.0.effects("a 1").await), ((1, 1, 1), 1));
}

/// A version of the service whose handler has no call leaves messages alone whose call was made. It would ignore the answer,
/// and may pay by itself.
pub async fn an_answer_waits_for_a_version_that_has_the_call<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish_order(order("a", &[Act::Fail, Act::Ok]), []);
    let hour = Duration::from_secs(3600);
    let worker = paying.start_with(Settings::late());
    paying.row(|row| row.attempts == 1 && row.answer.is_some()).await;
    worker.stop().await;
    let worker = paying.0.run_until_stopped(paying.0.worker().handler::<PaysItself<W>>(), Settings::default());
    paying.time_passes(24 * hour).await;
    paying.row(|row| row.run_at > SystemTime::now() + Duration::from_secs(2)).await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 1, 0));
    let worker = paying.start();
    paying.time_passes(hour).await;
    paying.sees(&["scheduled 0", "scheduled 1", "processed"]).await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
}

/// Of a message for which no call has begun, a version whose handler has no call does what it does in its own way.
pub async fn a_message_that_was_not_called_runs_in_a_version_without_the_call<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", []);
    let (worker, _) = paying.start_that_hangs_in("fetch_calls");
    paying.row(|row| row.calls == Some(0)).await;
    worker.crash().await;
    let worker = paying.0.run_until_stopped(paying.0.worker().handler::<PaysItself<W>>(), Settings::default());
    until(async || paying.0.desk.runs("a") != 0 && paying.0.scheduled().await.is_empty()).await;
    worker.stop().await;
    assert_eq!((paying.provider().charged("a"), paying.0.dead().await.len()), (1, 0));
}
