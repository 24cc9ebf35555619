//! Codecs that see the whole delivery, and must fetch something before they can decode it.

use std::time::Duration;

use idem_core::store::{Claims, HandlerId, Replayed};
use idem_core::{Delivery, DeliveryOrder, Headers, Reason, RetryPolicy, SuspectLock};

use crate::Publication;
use crate::conformance::soon;

use super::crashes::{crash_on, schedule_delivery};
use super::orders::Act;
use super::schemas::{Answer, BACKWARDS, Registry};
use super::{Line, Order, Settings, World};

fn of_schema(schema: &'static str, order: Order) -> Publication {
    Publication::from(order).header("schema", schema)
}

/// With a limit longer than any test.
fn patient() -> Settings {
    Settings { prepare_timeout: Duration::from_secs(3600), ..Settings::default() }
}

/// Leaves rows in the inbox whose first attempt has failed and whose worker has ended.
async fn rows<W: World>(line: &Line<W>, schema: &'static str, ids: &[&str]) {
    let (registry, before) = (Registry::default(), line.outcomes(0).await.len());
    registry.answers(schema, Answer::Known);
    let due = Duration::from_secs(1);
    let retry = RetryPolicy::new().min_delay(due).max_delay(due);
    let worker = line.start_with_codec(registry.codec(), Settings { retry, ..Settings::default() });
    for id in ids {
        line.publish(of_schema(schema, Order::new(id, &[Act::Fail, Act::Ok]).by_attempt()));
    }
    let outcomes = line.outcomes(before + ids.len()).await;
    assert!(outcomes[before..].iter().all(|outcome| outcome == "scheduled 1"), "{outcomes:?}");
    soon(line.queue.idle()).await;
    worker.stop().await;
}

/// Directly, and from the inbox.
pub async fn a_codec_sees_the_headers_and_the_content_type<W: World>(world: W) {
    let line = Line::new(world).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Known);
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    let forwards = Publication::from(Order::new("a", &[Act::Fail, Act::Ok]).by_attempt());
    let mut payload = forwards.payload().to_vec();
    payload.reverse();
    line.publish(Publication::new(payload).content_type(BACKWARDS).header("schema", "v1"));
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    worker.stop().await;
    assert_eq!((line.effects("a").await, registry.times_asked()), (1, 1));
}

/// All other messages are processed meanwhile. Those that need the registry are held, uncharged, and processed when it
/// is back.
pub async fn a_registry_that_is_away_costs_no_attempt_and_no_dead_letter<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.lease(Some(Duration::from_secs(2)));
    let registry = Registry::default();
    registry.answers("v1", Answer::Away);
    line.publish_redelivered(of_schema("v1", Order::ok("again"))).await;
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    for id in ["a", "b"] {
        line.publish(of_schema("v1", Order::ok(id)));
    }
    for n in 0..20 {
        line.publish(Order::ok(&n.to_string()));
    }
    assert!(line.outcomes(20).await.iter().all(|outcome| outcome == "processed"));
    // More than once for each of them.
    registry.asked(9).await;
    soon(line.queue.settled(20)).await;
    let counts = line.queue.counts();
    assert_eq!((counts.unsettled, counts.ready), (3, 0), "{counts:?}");
    assert!(line.dead().await.is_empty() && line.scheduled().await.is_empty());
    registry.answers("v1", Answer::Known);
    line.outcomes(if W::INBOX { 23 } else { 24 }).await;
    soon(line.queue.idle()).await;
    worker.stop().await;
    for id in ["a", "b", "again"] {
        assert_eq!((line.effects(id).await, line.desk.runs(id)), (1, 1), "{id}");
    }
    assert_eq!(line.queue.counts().redeliveries, 1, "that of the consumer before");
}

/// A new worker knows no schema, and the inbox already has rows.
pub async fn a_row_whose_registry_is_away_is_charged_with_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["a"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Away);
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    registry.asked(3).await;
    line.publish(Order::ok("other"));
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    let row = line.scheduled().await.remove(0);
    assert_eq!((row.attempts, row.breaks, row.error.as_str()), (1, 0, "attempt 1 has failed"));
    registry.answers("v1", Answer::Known);
    assert_eq!(line.outcomes(3).await[2], "processed");
    worker.stop().await;
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 2));
}

/// Its codec may soon forget what it has fetched. A delay would be longer than that each time.
pub async fn a_row_runs_as_soon_as_its_codec_is_prepared<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["a"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Brief);
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    worker.stop().await;
    assert_eq!(line.effects("a").await, 1);
}

/// No process takes it meanwhile. It may wait for hours, and processes are replaced meanwhile.
pub async fn a_row_that_waits_for_its_codec_is_not_charged_when_its_process_ends<W: World>(world: W) {
    let line = Line::new(world).await;
    let (orders, _) = handlers(&line).await;
    schedule_delivery(&line, orders, "a", of_schema_v1("a")).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    let worker = line.start_with_codec(registry.codec(), patient());
    registry.asked(1).await;
    // Beyond its first lease.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(registry.times_asked(), 1);
    worker.crash().await;
    assert_eq!(line.scheduled().await[0].starts, 0);
    registry.answers("v1", Answer::Known);
    let worker = line.start_with_codec(registry.codec(), patient());
    assert_eq!(line.outcomes(1).await, ["processed"]);
    worker.stop().await;
}

/// The preparations of one handler leave room for those of another one.
pub async fn a_registry_that_hangs_delays_no_other_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    let (orders, refunds) = handlers(&line).await;
    for n in 0..70 {
        schedule_delivery(&line, orders, &n.to_string(), of_schema_v1(&n.to_string())).await;
    }
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    registry.answers("v2", Answer::Known);
    let worker = line.start_with_codec(registry.codec(), Settings { both: true, ..patient() });
    registry.asked(32).await;
    // As many rows as can be have been taken.
    tokio::time::sleep(Duration::from_secs(1)).await;
    schedule_delivery(&line, refunds, "b", of_schema_v1("b").with_headers(schema_header("v2"))).await;
    assert_eq!(line.outcomes(1).await, ["processed"]);
    assert_eq!(line.effects("refund b").await, 1);
    worker.stop().await;
}

/// Waiting for a registry is no reason to stop all other work of the process again and again.
pub async fn a_suspect_whose_registry_is_away_makes_its_process_quiet_once<W: World>(world: W) {
    let line = Line::new(world).await;
    let (orders, _) = handlers(&line).await;
    schedule_delivery(&line, orders, "suspect", of_schema_v1("suspect")).await;
    crash_on(&line, orders, 2, Duration::ZERO).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Away);
    let gate = SuspectLock::new();
    let settings = Settings { gate: Some(gate.clone()), ..Settings::default() };
    let worker = line.start_with_codec(registry.codec(), settings);
    registry.asked(5).await;
    assert_eq!(gate.times_exclusive(), 1, "to find that it needs the registry");
    assert_eq!(line.scheduled().await[0].starts, 2);
    registry.answers("v1", Answer::Known);
    assert_eq!(line.outcomes(1).await, ["processed"]);
    assert_eq!(gate.times_exclusive(), 2, "to run it");
    worker.stop().await;
}

/// A verdict belongs to the try that has found it.
pub async fn a_replay_of_what_had_no_schema_asks_again<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["a"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Unknown);
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    for times in 1..=2 {
        assert_eq!(line.outcomes(1 + times).await[times], "dead: undecodable");
        assert_eq!(registry.times_asked(), times);
        registry.answers("v1", if times == 1 { Answer::Unknown } else { Answer::Known });
        assert_eq!(line.inbox().replay(line.one_dead().await.id).await.unwrap(), Replayed::Due);
    }
    // A replayed message has all its attempts again, and its handler fails at the first one.
    assert_eq!(line.outcomes(5).await[3..], ["scheduled 1", "processed"]);
    worker.stop().await;
}

/// The handlers of the suite, as their ids.
async fn handlers<W: World>(line: &Line<W>) -> (HandlerId, HandlerId) {
    let handlers = line.store.register("billing", &["orders", "refunds"]).await.unwrap();
    (handlers[0], handlers[1])
}

fn of_schema_v1(id: &str) -> Delivery {
    Delivery::new("orders", serde_json::to_vec(&Order::ok(id)).unwrap()).with_headers(schema_header("v1"))
}

fn schema_header(schema: &'static str) -> Headers {
    [("schema", schema)].into_iter().collect()
}

/// The message is at fault, as it is if the preparation panics. It is kept in full, also as a row of the inbox.
pub async fn a_schema_that_does_not_exist_makes_a_dead_letter<W: World>(world: W) {
    let line = Line::new(world).await;
    for (answer, why) in [(Answer::Unknown, "there is no schema v1"), (Answer::Panic, "the registry's client panics")] {
        let before = line.outcomes(0).await.len();
        let (direct, from_row) = (format!("direct {answer:?}"), format!("row {answer:?}"));
        rows(&line, "v1", &[&from_row]).await;
        let registry = Registry::default();
        registry.answers("v1", answer);
        let worker = line.start_with_codec(registry.codec(), Settings::default());
        line.publish(of_schema("v1", Order::ok(&direct)));
        let outcomes = line.outcomes(before + 3).await;
        assert_eq!(outcomes[before + 1..], ["dead: undecodable", "dead: undecodable"]);
        soon(line.queue.idle()).await;
        worker.stop().await;
        let dead = line.dead().await;
        let mut dead: Vec<_> = dead.into_iter().filter(|row| row.error.contains(why)).collect();
        dead.sort_by_key(|row| row.attempts);
        assert_eq!(dead.iter().map(|row| row.attempts).collect::<Vec<_>>(), [0, 1], "{dead:?}");
        assert!(dead.iter().all(|row| row.reason == Some(Reason::Undecodable)));
        assert_eq!(dead[0].delivery.payload(), Publication::from(Order::ok(&direct)).payload());
        assert_eq!((line.desk.runs(&direct), line.desk.runs(&from_row)), (0, 1));
    }
}

/// It occupies no lane and no slot: with fewer of both than there are such messages, all others are processed.
pub async fn a_preparation_that_hangs_holds_up_nothing_but_its_message<W: World>(world: W) {
    let line = Line::new(world).await;
    let stuck = ["a", "b", "c"];
    rows(&line, "v1", &stuck).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    registry.answers("v2", Answer::Hang);
    let worker = line.start_with_codec(registry.codec(), Settings { concurrency: 2, ..patient() });
    line.publish(of_schema("v2", Order::ok("direct")));
    registry.asked(4).await;
    for n in 0..20 {
        line.publish(Order::ok(&n.to_string()));
    }
    line.publish(Order::new("retried", &[Act::Fail, Act::Ok]).by_attempt());
    assert_eq!(line.outcomes(25).await[3..].iter().filter(|outcome| *outcome == "processed").count(), 21);
    assert_eq!((line.effects("retried").await, line.dead().await.len(), registry.times_asked()), (1, 0, 4));
    registry.answers("v1", Answer::Known);
    registry.answers("v2", Answer::Known);
    assert!(line.outcomes(29).await[25..].iter().all(|outcome| outcome == "processed"));
    soon(line.queue.idle()).await;
    worker.stop().await;
    for id in stuck.iter().chain(&["direct"]) {
        assert_eq!(line.effects(id).await, 1, "{id}");
    }
}

/// A preparation that takes too long is dropped and retried after a while.
pub async fn a_preparation_that_hangs_is_tried_again<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["row"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    registry.answers("v2", Answer::Hang);
    let settings = Settings { prepare_timeout: Duration::from_millis(50), ..Settings::default() };
    let worker = line.start_with_codec(registry.codec(), settings);
    line.publish(of_schema("v2", Order::ok("direct")));
    registry.asked(6).await;
    assert!(line.dead().await.is_empty());
    registry.answers("v1", Answer::Known);
    registry.answers("v2", Answer::Known);
    assert_eq!(line.outcomes(3).await, ["scheduled 1", "processed", "processed"]);
    soon(line.queue.idle()).await;
    worker.stop().await;
}

/// A codec that forgets what it has fetched is asked less and less often, and produces no dead letter.
pub async fn a_codec_that_forgets_its_preparation_is_tried_again<W: World>(world: W) {
    let line = Line::new(world).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Forgotten);
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    line.publish(of_schema("v1", Order::ok("a")));
    registry.asked(3).await;
    // Without the delay it would be thousands.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(registry.times_asked() < 10, "{}", registry.times_asked());
    registry.answers("v1", Answer::Known);
    assert_eq!(line.outcomes(1).await, ["processed"]);
    worker.stop().await;
}

/// A message that waits for its preparation goes back to the broker, and its preparation ends.
pub async fn a_drain_releases_what_its_codec_prepares_for<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["row"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    let worker = line.start_with_codec(registry.codec(), patient());
    line.publish(of_schema("v1", Order::ok("a")));
    registry.asked(2).await;
    worker.stop().await;
    let counts = line.queue.counts();
    assert_eq!((counts.acks, counts.ready, counts.unsettled), (1, 1, 0), "{counts:?}");
    registry.answers("v1", Answer::Known);
    let worker = line.start_with_codec(registry.codec(), patient());
    line.outcomes(if W::INBOX { 3 } else { 4 }).await;
    soon(line.queue.idle()).await;
    worker.stop().await;
    assert_eq!((line.effects("a").await, line.effects("row").await, line.scheduled().await.len()), (1, 1, 0));
}

/// A first delivery and a redelivery: no message of its ordering key passes it, and other keys do not wait for it.
pub async fn what_its_codec_prepares_for_keeps_its_place<W: World>(world: W) {
    let line = Line::new(world).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    let lane = |lane: u64, message: Publication| message.ordering_key(lane);
    let plain = |id: &str| Publication::from(Order::ok(id));
    line.publish_redelivered(lane(1, of_schema("v1", Order::ok("again")))).await;
    line.publish(lane(1, plain("behind it")));
    line.publish(lane(2, of_schema("v1", Order::ok("first"))));
    line.publish(lane(2, plain("behind the first")));
    let settings = Settings { concurrency: 1, order: DeliveryOrder::Key, ..patient() };
    let worker = line.start_with_codec(registry.codec(), settings);
    registry.asked(2).await;
    for n in 0..10 {
        line.publish(lane(3, plain(&n.to_string())));
    }
    assert!(line.outcomes(10).await.iter().all(|outcome| outcome == "processed"));
    assert_eq!(line.desk.runs("behind it") + line.desk.runs("behind the first"), 0);
    registry.answers("v1", Answer::Known);
    line.outcomes(15).await;
    soon(line.queue.idle()).await;
    worker.stop().await;
    let log = line.desk.log();
    let place = |id: &str| log.iter().position(|ran| ran == id).unwrap();
    assert!(place("again") < place("behind it") && place("first") < place("behind the first"), "{log:?}");
}
