//! Codecs that see the whole delivery, and must fetch something before they can decode it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use idem_core::store::Replayed;
use idem_core::{Codec, DecodeError, Delivery, IsolationLock, Json, PrepareError, Reason};

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::Publication;

use super::crashes::{crash_on, schedule_delivery};
use super::line::Line;
use super::orders::{Act, Order};
use super::schemas::{Answer, BACKWARDS, Registry, handlers, of_schema, of_schema_v1, patient, rows};
use super::settings::Settings;

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

/// JSON, for example: neither for a message that runs directly, nor for one that runs from the inbox, nor for one that is
/// not JSON.
pub async fn a_codec_that_needs_nothing_is_never_prepared<W: World>(world: W) {
    let line = Line::new(world).await;
    let prepared = Arc::new(AtomicUsize::new(0));
    let start = || line.start_with_codec(CountedJson(prepared.clone()), Settings::default());
    let worker = start();
    line.publish(Order::new("a", &[Act::Fail, Act::Ok]).by_attempt());
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    worker.stop().await;
    // Without a worker, which would take its first delivery.
    line.publish_redelivered(Order::ok("b")).await;
    let worker = start();
    line.publish(Publication::new("no JSON"));
    let outcomes = line.outcomes(if line.world.inbox() { 4 } else { 5 }).await;
    assert!(outcomes.contains(&"dead: undecodable".to_owned()), "{outcomes:?}");
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 1));
    assert_eq!(prepared.load(SeqCst), 0);
}

/// JSON that counts its preparations.
struct CountedJson(Arc<AtomicUsize>);

impl Codec<Order> for CountedJson {
    fn decode(&self, delivery: &Delivery) -> Result<Order, DecodeError> {
        Json.decode(delivery)
    }

    async fn prepare(&self, delivery: &Delivery) -> Result<(), PrepareError> {
        self.0.fetch_add(1, SeqCst);
        Codec::<Order>::prepare(&Json, delivery).await
    }
}

/// All other messages are processed meanwhile. Those that need the registry are parked, with no attempt recorded, and processed
/// when it is back.
pub async fn a_registry_that_is_away_costs_no_attempt_and_no_dead_letter<W: World>(world: W) {
    let line = Line::new(world).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Away);
    line.publish_redelivered(of_schema("v1", Order::ok("again"))).await;
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    for id in ["a", "b"] {
        line.publish(of_schema("v1", Order::ok(id)));
    }
    line.publish_numbers(0..20);
    assert!(line.outcomes(20).await.iter().all(|outcome| outcome == "processed"));
    // For one of them at a time, and more than once.
    registry.asked(4).await;
    soon(line.queue.settled(20)).await;
    let counts = line.queue.counts();
    assert_eq!((counts.unsettled, counts.ready), (3, 0), "{counts:?}");
    assert!(line.dead().await.is_empty() && line.scheduled().await.is_empty());
    registry.answers("v1", Answer::Known);
    line.outcomes(if line.world.inbox() { 23 } else { 24 }).await;
    worker.stop_once_idle(&line.queue).await;
    for id in ["a", "b", "again"] {
        assert_eq!((line.effects(id).await, line.desk.runs(id)), (1, 1), "{id}");
    }
    assert_eq!(line.queue.counts().redeliveries, 1, "that of the consumer before");
}

/// A new worker knows no schema, and the inbox already has rows.
pub async fn a_row_records_no_attempt_while_its_registry_is_away<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["a"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Away);
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    registry.asked(3).await;
    line.publish(Order::ok("other"));
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    let row = line.scheduled().await.remove(0);
    assert_eq!((row.attempts, row.lost_connections, row.error.as_str()), (1, 0, "attempt 1 has failed"));
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

/// No process fetches it meanwhile. It may wait for hours, and processes are replaced meanwhile.
pub async fn a_row_that_waits_for_its_codec_counts_no_start_when_its_process_ends<W: World>(world: W) {
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
    assert_eq!(line.scheduled().await[0].crash_count, 0);
    registry.answers("v1", Answer::Known);
    let worker = line.start_with_codec(registry.codec(), patient());
    assert_eq!(line.outcomes(1).await, ["processed"]);
    worker.stop().await;
}

/// Waiting for a registry is no reason to count a start: that its codec has to prepare is found in isolation.
pub async fn an_orphan_whose_registry_is_away_counts_no_start<W: World>(world: W) {
    let line = Line::new(world).await;
    let (orders, _) = handlers(&line).await;
    schedule_delivery(&line, orders, "orphan", of_schema_v1("orphan")).await;
    crash_on(&line, orders, 2, Duration::ZERO).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Away);
    let gate = IsolationLock::new();
    let settings = Settings { gate: Some(gate.clone()), ..Settings::default() };
    let worker = line.start_with_codec(registry.codec(), settings);
    registry.asked(5).await;
    assert_eq!(line.scheduled().await[0].crash_count, 2);
    registry.answers("v1", Answer::Known);
    assert_eq!(line.outcomes(1).await, ["processed"]);
    assert!(gate.times_exclusive() >= 2, "to find that it needs the registry, and to run it");
    worker.stop().await;
}

/// A verdict belongs to the try that has found it.
pub async fn a_replay_of_a_row_without_a_schema_asks_again<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["a"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Unknown);
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    for times in 1..=2 {
        assert_eq!(line.outcomes(1 + times).await[times], "dead: undecodable");
        assert_eq!(registry.times_asked(), times);
        registry.answers("v1", if times == 1 { Answer::Unknown } else { Answer::Known });
        assert_eq!(line.operator().replay(line.one_dead().await.id).await.unwrap(), Replayed::Due);
    }
    // A replayed message has all its attempts again, and its handler fails at the first one.
    assert_eq!(line.outcomes(5).await[3..], ["scheduled 1", "processed"]);
    worker.stop().await;
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
        worker.stop_once_idle(&line.queue).await;
        let dead = line.dead().await;
        let mut dead: Vec<_> = dead.into_iter().filter(|row| row.error.contains(why)).collect();
        dead.sort_by_key(|row| row.attempts);
        assert_eq!(dead.iter().map(|row| row.attempts).collect::<Vec<_>>(), [0, 1], "{dead:?}");
        assert!(dead.iter().all(|row| row.reason == Some(Reason::Undecodable)));
        assert_eq!(dead[0].delivery.payload(), Publication::from(Order::ok(&direct)).payload());
        assert_eq!((line.desk.runs(&direct), line.desk.runs(&from_row)), (0, 1));
    }
}
