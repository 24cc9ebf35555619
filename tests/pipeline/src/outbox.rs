//! Messages that handlers stage.

use std::iter;
use std::time::Duration;

use idem_core::Outgoing;

use idem_conformance::store::World;
use idem_conformance::{soon, until};

use super::line::sorted;
use super::orders::{Act, Order};
use super::settings::Settings;
use super::staging::{MANY, StagesUndeclared, Staging};
use super::watched::{is_ready, watched};

/// With its effect, in its order, and with its key and headers; also a message that is too large for the string of
/// COMMIT, and ten thousand messages.
pub async fn messages_that_a_handler_stages_are_written_with_its_effect<W: World>(world: W) {
    let staging = Staging::new(world).await;
    staging.publish("Staging", Order::ok("a"));
    staging.run(1).await;
    assert_eq!(staging.staged().await, ["a 1", "a 2"]);
    let row = staging.rows().await.remove(0);
    let expected = Outgoing::json("orders.paid", "a 1").unwrap().key("a").header("tenant", "acme");
    assert_eq!(row.message.message(), &expected);
    assert_eq!(row.message.id().get_version_num(), 8);
    staging.publish("Staging", Order::ok("large"));
    staging.publish("Staging", Order::ok("a"));
    staging.run(3).await;
    assert_eq!(staging.staged().await, ["a 1", "a 2", "large 1", "large", "large 2"]);
    assert_eq!(staging.0.effects("a").await, 1);
    staging.publish("Staging", Order::ok("many"));
    staging.run(4).await;
    let many = staging.staged().await.split_off(5);
    let expected = (0..MANY).map(|n| n.to_string());
    let expected: Vec<String> = iter::once("many 1".to_owned()).chain(expected).chain(["many 2".to_owned()]).collect();
    assert!(many == expected, "{} messages, or their order", many.len());
}

/// Whatever a handler does before it succeeds, its messages are there once; and never if it does not.
pub async fn nothing_is_staged_by_a_run_that_fails<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let acts = [Act::Fail, Act::Panic, Act::Fail, Act::Ok];
    staging.publish("Staging", Order::new("fails", &acts).by_attempt());
    staging.publish("Staging", Order::new("never", &[Act::Permanent]));
    staging.publish("Staging", Order::new("rolls back", &[Act::Rollback]));
    staging.publish("Staging", Order::new("begins", &[Act::RollbackBegin]));
    staging.publish("Staging", Order::new("commits", &[Act::Commit]));
    staging.publish("Staging", Order::new("begins again", &[Act::CommitBegin]));
    staging.publish("Staging", Order::ok("good"));
    staging.run(10).await;
    assert_eq!(sorted(staging.staged().await), ["fails 1", "fails 2", "good 1", "good 2"]);
    assert_eq!(staging.0.dead().await.len(), 5);
}

/// Messages are no part of the savepoint in which a handler stages them.
pub async fn a_nested_rollback_keeps_what_was_staged<W: World>(world: W) {
    let staging = Staging::new(world).await;
    staging.publish("Staging", Order::new("a", &[Act::Nested]));
    staging.run(1).await;
    assert_eq!(staging.staged().await, ["a 1", "a 2"]);
}

/// A message that no broker can carry is a failure of the handler, and nothing of its run is left.
pub async fn a_message_that_cannot_be_sent_is_a_failure<W: World>(world: W) {
    let staging = Staging::new(world).await;
    staging.publish("Staging", Order::ok("undeliverable"));
    staging.run(5).await;
    let dead = staging.0.one_dead().await;
    assert!(dead.error.contains("the name of a header has a control character"), "{}", dead.error);
    assert_eq!((staging.staged().await.len(), staging.0.effects("undeliverable").await), (0, 0));
}

/// Two messages with one id are copies to their consumers, and NATS keeps only one of them.
pub async fn two_messages_with_one_id_are_a_failure<W: World>(world: W) {
    let staging = Staging::new(world).await;
    staging.publish("Staging", Order::ok("one id"));
    staging.run(5).await;
    let dead = staging.0.one_dead().await;
    assert!(dead.error.contains("message 3") && dead.error.contains("an id of its own"), "{}", dead.error);
    assert_eq!((staging.staged().await.len(), staging.0.effects("one id").await), (0, 0));
}

/// A task that a handler has spawned may hold its outbox longer than the handler runs.
pub async fn a_handler_that_has_ended_stages_nothing<W: World>(world: W) {
    let staging = Staging::new(world).await;
    staging.publish("Staging", Order::ok("good"));
    staging.publish("Staging", Order::new("bad", &[Act::Permanent]));
    staging.run(2).await;
    let outboxes = staging.0.desk.outboxes.lock().unwrap().clone();
    assert!(outboxes.len() >= 2);
    for outbox in outboxes {
        let why = outbox.publish("orders.paid", "late").unwrap_err().to_string();
        assert!(why.contains("the handler \"stages\" has ended"), "{why}");
    }
    let mut staged = staging.staged().await;
    staged.sort();
    assert_eq!(staged, ["good 1", "good 2"]);
}

/// A message that is larger than the broker of the relay takes is refused where it is staged.
pub async fn a_message_over_the_limit_of_the_relay_is_a_failure<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let sink = idem_test::MemorySink::new();
    sink.set_limit(50_000);
    let relay = idem_core::Relay::new("billing", staging.0.store.clone(), sink.clone());
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(std::future::pending()));
    until(async || health.is_ready()).await;
    staging.publish("Staging", Order::ok("large"));
    staging.publish("Staging", Order::ok("small"));
    staging.run(6).await;
    let dead = staging.0.one_dead().await;
    assert!(dead.error.contains("takes 50000"), "{}", dead.error);
    soon(sink.wait_for(|sink| sink.published().len() == 2)).await;
    relay.abort();
    let _ = relay.await;
}

/// Whatever runs twice publishes under the same ids.
pub async fn a_message_that_runs_again_stages_under_the_same_ids<W: World>(world: W) {
    let staging = Staging::new(world).await;
    for id in ["a", "b"] {
        staging.publish("Staging", Order::ok(id));
    }
    staging.run(2).await;
    let first = staging.ids().await;
    assert_eq!(first.len(), 4);
    assert_eq!(first.values().collect::<std::collections::BTreeSet<_>>().len(), 4, "{first:?}");
    let (outbox, claims) = (staging.0.world.own("outbox_messages"), staging.0.world.own("processed_messages"));
    staging.0.world.run(&format!("DELETE FROM {outbox}; DELETE FROM {claims}")).await;
    for id in ["b", "a"] {
        staging.publish("Staging", Order::ok(id));
    }
    staging.run(4).await;
    assert_eq!(staging.ids().await, first);
}

/// It is told what its extractor has to declare, and nothing is lost silently.
pub async fn a_handler_that_stages_without_saying_so_fails<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let worker = staging.0.run_until_stopped(staging.0.worker().handler::<StagesUndeclared<W>>(), Settings::once());
    staging.publish("Staging", Order::ok("a"));
    staging.0.outcomes(1).await;
    worker.stop().await;
    let dead = staging.0.one_dead().await;
    assert!(dead.error.contains("const STAGES: bool = true"), "{}", dead.error);
}

/// Many messages, some of which fail at first: each has staged once, whichever messages it ran with.
pub async fn each_of_many_messages_stages_once<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let worker = staging.start(Settings { concurrency: 2, ..Settings::default() });
    for n in 0..60 {
        let acts: &[Act] = if n % 7 == 3 { &[Act::Fail, Act::Ok] } else { &[Act::Ok] };
        staging.publish("Staging", Order::new(&n.to_string(), acts).by_attempt());
    }
    let failing = (0..60).filter(|n| n % 7 == 3).count();
    staging.0.outcomes(60 + failing).await;
    worker.stop_once_idle(&staging.0.queue).await;
    let mut staged = staging.staged().await;
    let mut expected: Vec<String> = (0..60).flat_map(|n| [format!("{n} 1"), format!("{n} 2")]).collect();
    staged.sort();
    expected.sort();
    assert_eq!(staged, expected);
    for row in staging.rows().await.chunk_by(|one, next| one.message.key() == next.message.key()) {
        let places: Vec<String> = row.iter().map(|row| row.message.message().decode().unwrap()).collect();
        assert!(places.iter().map(|text| text.split(' ').next_back()).is_sorted(), "{places:?}");
    }
}

/// What a batch handler stages is written with the batch, also after it was halved.
pub async fn a_batch_handler_stages_with_its_batch<W: World>(world: W) {
    let staging = Staging::new(world).await;
    for n in 0..10 {
        staging.publish("StagingBatch", Order::ok(&n.to_string()));
    }
    staging.publish("StagingBatch", Order::new("bad", &[Act::Permanent]));
    staging.run(11).await;
    assert_eq!(sorted(staging.staged().await), (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(staging.rows().await.iter().all(|row| row.message.id().get_version_num() == 7));
}

/// An extractor of a batch handler is called for each message.
pub async fn what_an_extractor_stages_is_written_for_each_message_of_a_batch<W: World>(world: W) {
    let staging = Staging::new(world).await;
    for n in 0..10 {
        staging.publish("StagingBatch", Order::ok(&format!("audited {n}")));
    }
    staging.run(10).await;
    let audits = staging.rows().await.iter().filter(|row| row.message.to() == "audits").count();
    assert_eq!((audits, staging.rows().await.len()), (10, 20));
}

/// Wherever its message is in the batch.
pub async fn an_extractor_that_fails_for_one_message_of_a_batch_fails_it_alone<W: World>(world: W) {
    let staging = Staging::new(world).await;
    for n in 0..10 {
        staging.publish("StagingBatch", Order::ok(&n.to_string()));
        staging.publish("StagingBatch", Order::ok(&format!("{n} without an audit")));
    }
    staging.run(20).await;
    let dead = staging.0.dead().await;
    assert!(dead.len() == 10 && dead.iter().all(|dead| dead.error == "it has no audit"), "{dead:?}");
    assert_eq!((staging.rows().await.len(), staging.0.effects("3 without an audit").await), (10, 0));
}

/// It does not wait for its next poll.
pub async fn a_relay_is_woken_by_the_commit_of_a_handler<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let sink = idem_test::MemorySink::new();
    let relay = idem_core::Relay::new("billing", staging.0.store.clone(), sink.clone());
    let relay = relay.poll_interval(Duration::from_secs(600));
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(std::future::pending()));
    is_ready(&health, true).await;
    let worker = staging.start(Settings::default());
    // The first read of the relay may find the first ones.
    for n in 1..=3 {
        staging.publish("Staging", Order::ok(&n.to_string()));
        soon(sink.wait_for(|sink| sink.published().len() == 2 * n)).await;
    }
    relay.abort();
    worker.stop().await;
}

/// A worker whose handlers stage is unready while no relay of its outbox is alive, and says so.
pub async fn a_worker_without_a_relay_is_unready<W: World>(world: W) {
    let staging = Staging::new(world).await;
    // A misspelt one is a relay of another outbox.
    let misspelt = idem_core::Relay::new("biling", staging.0.store.clone(), idem_test::MemorySink::new());
    let alive = misspelt.health();
    let misspelt = tokio::spawn(misspelt.run_until(std::future::pending()));
    is_ready(&alive, true).await;
    let (settings, health) = watched(2);
    let worker = staging.start(Settings { relay_patience: Duration::from_millis(600), ..settings });
    let health = health.borrow().clone().unwrap();
    until(async || health.unrelayed().is_some()).await;
    assert!(!health.is_ready() && health.broker() && health.database());
    assert!(health.unrelayed().unwrap().contains("Relay::new(\"billing\""), "{:?}", health.unrelayed());
    staging.publish("Staging", Order::ok("a"));
    staging.0.outcomes(1).await;
    let sink = idem_test::MemorySink::new();
    let relay = idem_core::Relay::new("billing", staging.0.store.clone(), sink.clone());
    let relay = tokio::spawn(relay.run_until(std::future::pending()));
    is_ready(&health, true).await;
    soon(sink.wait_for(|sink| sink.published().len() == 2)).await;
    relay.abort();
    misspelt.abort();
    worker.stop().await;
}
