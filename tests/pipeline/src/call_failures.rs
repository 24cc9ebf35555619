//! Lost answers, keys that are too old, and questions without an answer.

use std::time::{Duration, SystemTime};

use idem_core::Reason;
use idem_core::store::{Replayed, Resolution};

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::provider::Fault;

use super::paying::{ASK_AFTER, KEY_LIFE, MINUTE, Paying, attempts};
use super::settings::Settings;

/// Of a call to a provider without keys: it is not repeated, and the provider is asked.
pub async fn a_begun_call_without_a_key_is_asked_about<W: World>(world: W) {
    let paying = Paying::<W, false, true>::new(world).await;
    paying.publish("there", [Fault::LoseAnswer]);
    paying.publish("not there", [Fault::LoseRequest]);
    paying.publish("busy", [Fault::Busy, Fault::Busy]);
    let worker = paying.start();
    for id in ["there", "not there"] {
        paying.row(|row| row.attempts == 1 && row.identity.key == idem_core::Key::of(id).unwrap()).await;
    }
    paying.time_passes(MINUTE).await;
    for id in ["there", "not there", "busy"] {
        paying.completed(id).await;
    }
    worker.stop().await;
    assert_eq!(paying.counts("there").await, (1, 1, 1), "its charge was found");
    assert_eq!(paying.counts("not there").await, (1, 2, 1), "it was not there, and is called again");
    assert_eq!(paying.counts("busy").await, (1, 3, 1), "it certainly had no effect");
    assert!(paying.0.dead().await.is_empty());
}

/// Until then its request may be held somewhere on its way, although nobody waits for it any more.
pub async fn a_call_is_asked_about_after_a_while<W: World>(world: W) {
    let paying = Paying::<W, false, true>::new(world).await;
    paying.publish("a", [Fault::LoseAnswer]);
    let worker = paying.start();
    paying.row(|row| row.attempts == 1).await;
    // The lease is over.
    paying.time_passes(ASK_AFTER - Duration::from_secs(10)).await;
    // The worker may look for it up to five seconds later.
    let later = Duration::from_secs(1);
    let row = paying.row(|row| row.locked_by.is_none() && row.run_at > SystemTime::now() + later).await;
    assert_eq!((row.attempts, paying.0.desk.runs("question a")), (1, 0));
    paying.time_passes(MINUTE).await;
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!((paying.counts("a").await, paying.0.desk.runs("question a")), ((1, 1, 1), 1));
}

/// It has charged a moment ago. A replay that took it for one that has not begun would charge again.
pub async fn a_replay_of_a_call_without_a_key_calls_nobody<W: World>(world: W) {
    let paying = Paying::<W, false, false>::new(world).await;
    paying.publish("large", []);
    let worker = paying.start_with(Settings { max_payload: 50_000, ..Settings::default() });
    paying.sees(&["scheduled 0", "dead: too large"]).await;
    let dead = paying.0.one_dead().await;
    assert_eq!(paying.0.operator().replay(dead.id).await.unwrap(), Replayed::Due);
    paying.sees(&["scheduled 0", "dead: too large", "dead: unresolved"]).await;
    worker.stop().await;
    assert_eq!(paying.counts("large").await, (1, 1, 0));
}

/// Without anybody to ask, a begun call is never repeated: a mail can be missing, and never comes twice.
pub async fn a_begun_call_that_nobody_can_be_asked_about_is_unresolved<W: World>(world: W) {
    let paying = Paying::<W, false, false>::new(world).await;
    for (id, fault) in [("lost", Fault::LoseRequest), ("done", Fault::LoseAnswer), ("panics", Fault::Panic)] {
        paying.publish(id, [fault]);
    }
    paying.publish("crashed", [Fault::Hang]);
    paying.publish("busy", [Fault::Busy]);
    let worker = paying.start();
    paying.completed("busy").await;
    until(async || paying.0.dead().await.len() >= 3 && paying.provider().charged("crashed") != 0).await;
    worker.crash().await;
    paying.time_passes(MINUTE).await;
    let worker = paying.start();
    until(async || paying.0.dead().await.len() >= 4).await;
    worker.stop().await;
    let dead = paying.0.dead().await;
    assert!(dead.iter().all(|row| row.reason == Some(Reason::Unresolved)), "{dead:?}");
    let cut_off = dead.iter().find(|row| row.identity.key.to_string() == "crashed").unwrap();
    assert!(cut_off.error.contains("it has begun, and its process or its connection ended"), "{}", cut_off.error);
    for (id, charged) in [("lost", 0), ("done", 1), ("panics", 0), ("crashed", 1)] {
        assert_eq!(paying.counts(id).await, (charged, 1, 0), "{id}");
    }
}

/// Neither a lost request nor a lost answer nor a late one costs a second charge.
pub async fn a_lost_answer_is_got_under_the_same_key<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    let lost = [
        ("request", Fault::LoseRequest),
        ("answer", Fault::LoseAnswer),
        ("late", Fault::Hang),
        ("panic", Fault::Panic),
    ];
    for (id, fault) in lost {
        paying.publish(id, [fault]);
    }
    let worker = paying.start();
    until(async || paying.0.scheduled().await.iter().filter(|row| row.attempts == 1).count() >= 4).await;
    for (id, _) in lost {
        assert_eq!(paying.counts(id).await.1, 1, "{id} is not repeated before its lease has ended");
    }
    paying.time_passes(MINUTE).await;
    for (id, _) in lost {
        paying.completed(id).await;
        assert_eq!(paying.counts(id).await, (1, 2, 1), "{id}");
        assert!(paying.has_one_key(id));
    }
    worker.stop().await;
    let delays = paying.0.delays();
    let lasts = |delay: &Duration| *delay > Duration::from_secs(5);
    assert!(delays.len() == 4 && delays.iter().all(lasts), "said before the end of the lease: {delays:?}");
}

/// The provider replays its error for the key, so no attempt can succeed. With another key it can.
pub async fn a_stored_error_ends_the_attempts<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::Error]);
    let worker = paying.start_with(attempts(2));
    paying.row(|row| row.attempts == 1).await;
    paying.time_passes(MINUTE).await;
    paying.sees(&["scheduled 0", "scheduled 1", "dead: exhausted"]).await;
    let dead = paying.0.one_dead().await;
    assert!(paying.has_one_key("a") && dead.error.contains("the status 500"), "{}", dead.error);
    assert!(paying.0.operator().resolve(dead.id, dead.provider_key.unwrap(), Resolution::CallAgain).await.unwrap());
    // The last request may still be on its way, for all that is known.
    paying.time_passes(MINUTE).await;
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 3, 1));
    assert!(!paying.has_one_key("a"));
}

/// A worker is paused beyond its lease, and another one calls as well: one charge, and one of them completes.
pub async fn a_call_that_outlives_its_lease_charges_once<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::Wait]);
    let first = paying.start_with(attempts(10_000));
    soon(paying.provider().waits(1)).await;
    paying.time_passes(MINUTE).await;
    let second = paying.start_with(attempts(10_000));
    // The provider is still busy with the first one.
    paying.row(|row| row.attempts >= 1).await;
    paying.provider().release();
    paying.completed("a").await;
    for worker in [first, second] {
        worker.stop().await;
    }
    let (charged, requests, effects) = paying.counts("a").await;
    assert_eq!((charged, effects), (1, 1), "after {requests} requests");
    assert!(paying.has_one_key("a") && paying.0.dead().await.is_empty());
}

/// A key that the provider may have forgotten is not used again before it was asked.
pub async fn a_key_that_is_too_old_is_asked_about<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("there", [Fault::LoseAnswer]);
    paying.publish("not there", [Fault::LoseRequest]);
    let worker = paying.start();
    for id in ["there", "not there"] {
        paying.row(|row| row.attempts == 1 && row.identity.key == idem_core::Key::of(id).unwrap()).await;
    }
    paying.provider().forget();
    paying.time_passes(KEY_LIFE).await;
    for id in ["there", "not there"] {
        paying.completed(id).await;
    }
    worker.stop().await;
    assert_eq!(paying.counts("there").await, (1, 1, 1));
    assert_eq!(paying.counts("not there").await, (1, 2, 1));
    assert!(paying.has_one_key("not there"), "there was no effect under the key, so its life has not begun");
}

/// A restored row has its old date: it is asked about, or unresolved, and not charged again.
pub async fn a_key_that_is_too_old_is_unresolved_where_nobody_can_be_asked<W: World>(world: W) {
    let paying = Paying::<W, true, false>::new(world).await;
    paying.publish("a", [Fault::LoseAnswer]);
    let worker = paying.start();
    paying.row(|row| row.attempts == 1).await;
    paying.provider().forget();
    paying.time_passes(KEY_LIFE).await;
    paying.sees(&["scheduled 0", "scheduled 1", "dead: unresolved"]).await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 1, 0));
}

/// The backup is from before its call. The provider recognizes the key, which was stored with the message.
pub async fn a_message_of_a_backup_from_before_its_call_has_the_same_key<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::LoseAnswer]);
    let (worker, _) = paying.start_that_hangs_in("fetch_calls");
    paying.row(|row| row.calls == Some(0)).await;
    worker.crash().await;
    let (inbox, backup) = (paying.0.world.own("inbox_messages"), paying.0.world.name("backup"));
    paying.0.world.run(&format!("CREATE TABLE {backup} AS SELECT provider_key FROM {inbox}")).await;
    let worker = paying.start();
    paying.row(|row| row.attempts == 1).await;
    worker.stop().await;
    let restored = format!("provider_key = (SELECT provider_key FROM {backup}), called_at = NULL, attempts = 0");
    paying.0.world.run(&format!("UPDATE {inbox} SET {restored}")).await;
    paying.time_passes(MINUTE).await;
    paying.completes("a").await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    assert!(paying.has_one_key("a"));
}

/// Since the backup, the provider has said twice that it knows no call, and has then charged. It is asked again under the same
/// key.
pub async fn a_message_of_a_backup_from_before_its_questions_is_charged_once<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::LoseRequest, Fault::LoseRequest, Fault::LoseAnswer]);
    let worker = paying.start();
    paying.row(|row| row.attempts == 1).await;
    let (inbox, backup) = (paying.0.world.own("inbox_messages"), paying.0.world.name("backup"));
    paying.0.world.run(&format!("CREATE TABLE {backup} AS SELECT provider_key, called_at FROM {inbox}")).await;
    for attempts in [2, 3] {
        paying.time_passes(KEY_LIFE).await;
        paying.row(|row| row.attempts == attempts).await;
    }
    worker.stop().await;
    assert_eq!((paying.counts("a").await, paying.0.desk.runs("question a")), ((1, 3, 0), 2));
    let of = |column: &str| format!("{column} = (SELECT {column} FROM {backup})");
    let restored = format!("{}, {}, attempts = 1", of("provider_key"), of("called_at"));
    paying.0.world.run(&format!("UPDATE {inbox} SET {restored}")).await;
    paying.provider().forget();
    paying.time_passes(KEY_LIFE).await;
    paying.completes("a").await;
    assert_eq!((paying.counts("a").await, paying.0.desk.runs("question a")), ((1, 3, 1), 3));
    assert!(paying.has_one_key("a"));
}

/// A question that fails, hangs or panics is asked again, and leaves the call unresolved in the end. The call has used up none
/// of its attempts.
pub async fn a_question_without_an_answer_is_unresolved<W: World>(world: W) {
    let paying = Paying::<W, false, true>::new(world).await;
    for id in ["a away", "a panics", "a hangs", "a unknown"] {
        paying.publish(id, [Fault::LoseAnswer]);
    }
    let worker = paying.start_with(attempts(2));
    until(async || paying.0.scheduled().await.iter().filter(|row| row.attempts == 1).count() >= 4).await;
    paying.time_passes(MINUTE).await;
    until(async || paying.0.dead().await.len() >= 4).await;
    worker.stop().await;
    for row in paying.0.dead().await {
        let questions = if row.error.contains("does not know it") { 1 } else { 2 };
        assert_eq!((row.reason, row.attempts), (Some(Reason::Unresolved), questions), "{}", row.error);
        assert_eq!(paying.0.desk.runs(&format!("question {}", row.identity.key)), questions as usize, "{}", row.error);
    }
    for id in ["a away", "a panics", "a hangs", "a unknown"] {
        assert_eq!(paying.counts(id).await, (1, 1, 0), "{id}");
    }
}
