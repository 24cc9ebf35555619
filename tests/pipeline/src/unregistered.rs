//! Inbox rows of handlers that a worker does not have.

use std::future::ready;
use std::time::Duration;

use idem_core::operator::{Filter, Page};
use idem_core::store::{Consumers, Remedies, SEEN_RECENTLY, StoreError};
use idem_core::{Reason, Worker};
use tokio::sync::watch;
use tracing::instrument::WithSubscriber;

use idem_conformance::captured;
use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::{Publication, Queue};

use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order, Orders};
use super::running::Running;
use super::settings::Settings;

/// With the refund handler besides the order handler.
fn newer() -> Settings {
    Settings { both: true, ..Settings::once() }
}

fn refund(id: &str, act: Act) -> Publication {
    Publication::from(Order::new(id, &[act])).event_type("Refund")
}

/// A dead letter of the handler `refunds`.
async fn dead_refund<W: World>(line: &Line<W>, id: &str) {
    line.publish_raw(refund(id, Act::Fail));
    line.runs_to(newer(), &["dead: exhausted"]).await;
}

/// Sets the last time that a worker had the handler `refunds` to a little more than `time` ago.
async fn unseen<W: World>(line: &Line<W>, time: Duration) {
    let (handlers, earlier) = (line.world.own("handlers"), W::earlier("seen_at", time + Duration::from_secs(60)));
    line.world.run(&format!("UPDATE {handlers} SET seen_at = {earlier} WHERE name = 'refunds'")).await;
}

/// Asserts that a worker starts and processes a message.
async fn starts<W: World>(line: &Line<W>, id: &str) {
    line.publish(Order::ok(id));
    line.runs_to(Settings::once(), &["processed"]).await;
    assert_eq!(line.effects(id).await, 1);
}

/// A worker with one of the two handlers, on a separate queue.
fn with_one<W: World, const REFUND: bool>(line: &Line<W>, queue: &Queue) -> Running {
    let worker = Worker::new("billing", line.store.clone(), queue.clone()).state(line.desk.clone());
    line.run_until_stopped(worker.handler::<Orders<W, REFUND>>(), Settings::once())
}

/// Each has a dead letter that the other one takes for unrunnable.
pub async fn workers_with_different_handlers_and_one_name_start_again<W: World>(world: W) {
    let line = Line::new(world).await;
    let refunds = line.broker.queue("refunds");
    let mut outcomes = 0;
    for (id, act) in [("bad", Act::Fail), ("good", Act::Ok), ("better", Act::Ok)] {
        line.publish(Order::new(id, &[act]));
        line.broker.publish("refunds", refund(id, act));
        let workers = [with_one::<W, false>(&line, &line.queue), with_one::<W, true>(&line, &refunds)];
        outcomes += 2;
        line.outcomes(outcomes).await;
        for (worker, queue) in workers.into_iter().zip([&line.queue, &refunds]) {
            soon(queue.idle()).await;
            worker.stop().await;
        }
    }
    assert_eq!(line.dead().await.len(), 2);
    for id in ["good", "better"] {
        assert_eq!((line.effects(id).await, line.effects(&format!("refund {id}")).await), (1, 1));
    }
}

/// The rows of its newer handler wait until a worker has it again.
pub async fn a_release_that_was_rolled_back_starts<W: World>(world: W) {
    let line = Line::new(world).await;
    dead_refund(&line, "a").await;
    unseen(&line, SEEN_RECENTLY / 2).await;
    starts(&line, "b").await;
    assert_eq!(line.one_dead().await.handler, "refunds");
}

/// No worker would ever run them. The commands in the error work as written.
pub async fn rows_of_an_unknown_handler_refuse_the_start_with_each_remedy<W: World>(world: W) {
    let line = Line::new(world).await;
    dead_refund(&line, "a").await;
    unseen(&line, SEEN_RECENTLY).await;
    let refused = line.start().refused().await;
    let remedies = Remedies::of(&line.store, "billing", "refunds", "orders");
    let named =
        ["\"billing\"", "\"refunds\"", "1 day", "formerly = \"refunds\"", "keep dead letters", "idem dead discard"];
    for remedy in named.into_iter().chain([&*remedies.part, &remedies.dead_letter]) {
        assert!(refused.contains(remedy), "{remedy:?} is not in {refused:?}");
    }
    assert!(remedies.part.contains(&line.world.own("handlers")), "it names the table");
    // A worker with the handler has started and ended.
    let started = with_one::<W, true>(&line, &line.broker.queue("refunds"));
    started.stop().await;
    starts(&line, "b").await;
}

/// The operator's commands discard dead letters only.
pub async fn scheduled_rows_of_an_unknown_handler_can_be_discarded<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_raw(refund("a", Act::Fail));
    line.runs_to(Settings { both: true, ..Settings::late() }, &["scheduled 1"]).await;
    unseen(&line, SEEN_RECENTLY).await;
    line.start().refused().await;
    line.world.run(&Remedies::of(&line.store, "billing", "refunds", "orders").dead_letter).await;
    let filter = Filter::new().handler("refunds");
    let dead = line.operator().list(&filter, Page::default()).await.unwrap().rows;
    assert_eq!(dead.iter().map(|row| row.reason).collect::<Vec<_>>(), [Some(Reason::Permanent)]);
    assert!(line.operator().discard(dead[0].id).await.unwrap());
    starts(&line, "b").await;
    line.publish_raw(refund("a", Act::Fail));
    line.runs_to(newer(), &["duplicate"]).await;
}

/// Processed messages stay processed under the new name, and the rows move along.
pub async fn a_handler_takes_its_claims_along_to_a_consumer_of_its_own<W: World>(world: W) {
    let line = Line::new(world).await;
    dead_refund(&line, "a").await;
    unseen(&line, SEEN_RECENTLY).await;
    line.start().refused().await;
    let part = Remedies::of(&line.store, "billing", "refunds", "orders").part;
    line.world.run(&part.replace("NEW_CONSUMER", "refunding")).await;
    starts(&line, "b").await;
    line.publish_raw(refund("a", Act::Fail));
    line.runs_to(Settings { consumer: "refunding", ..newer() }, &["duplicate"]).await;
    assert_eq!(line.dead().await.len(), 0);
    assert_eq!(line.world.number(&format!("SELECT count(*) FROM {}", line.world.own("inbox_messages"))).await, 1);
}

/// Starts and ends a worker whose only handler is `refunds`, and returns its log.
async fn log_of_refunds<W: World>(line: &Line<W>) -> String {
    let worker = Worker::new("billing", line.store.clone(), line.broker.queue("none")).state(line.desk.clone());
    let (text, subscriber) = captured();
    let run = worker.handler::<Orders<W, true>>().run_until(ready(())).with_subscriber(subscriber);
    run.await.unwrap();
    text.to_string()
}

/// A worker whose only handler is `refunds`, which was `orders` before.
fn with_former_name<W: World>(line: &Line<W>) -> Running {
    line.run_until_stopped(line.worker().handler::<Orders<W, true, true>>(), Settings::once())
}

/// Also if the release with the new name is rolled back, and comes again.
pub async fn a_handler_knows_under_a_new_name_what_it_has_processed_under_the_old_one<W: World>(world: W) {
    let line = Line::new(world).await;
    starts(&line, "a").await;
    let log = log_of_refunds(&line).await;
    for part in ["WARN", "\"orders\"", "count as new", "formerly = \"orders\""] {
        assert!(log.contains(part), "{part:?} is not in {log:?}");
    }
    let mut expected = vec!["processed".to_owned()];
    for (copy, later) in [("a", "b"), ("b", "c")] {
        line.publish_raw_redelivered(refund(copy, Act::Ok)).await;
        let worker = with_former_name(&line);
        expected.push("duplicate".to_owned());
        assert_eq!(line.outcomes(expected.len()).await, expected);
        worker.stop().await;
        // The release is rolled back.
        line.publish(Order::ok(later));
        let worker = line.start();
        expected.push("processed".to_owned());
        assert_eq!(line.outcomes(expected.len()).await, expected);
        worker.stop().await;
        assert_eq!((line.effects(copy).await, line.effects(&format!("refund {copy}")).await), (1, 0));
    }
    assert!(!log_of_refunds(&line).await.contains("WARN"), "the database knows both names");
}

/// What each of them has processed cannot be undone.
pub async fn two_names_that_have_claims_each_refuse_to_be_one_with_the_remedy<W: World>(world: W) {
    let line = Line::new(world).await;
    starts(&line, "a").await;
    line.publish_raw(refund("b", Act::Ok));
    line.runs_to(newer(), &["processed"]).await;
    let refused = with_former_name(&line).refused().await;
    let remedy = Remedies::of(&line.store, "billing", "orders", "refunds").join;
    for part in ["\"orders\"", "\"refunds\"", "formerly", &remedy] {
        assert!(refused.contains(part), "{part:?} is not in {refused:?}");
    }
    // The claim of a dead letter cannot be moved without its row.
    line.publish(Order::new("c", &[Act::Fail]));
    line.runs_to(Settings::once(), &["dead: exhausted"]).await;
    line.world.run(&remedy).await;
    with_former_name(&line).refused().await;
    line.publish(Order::ok("a"));
    line.runs_to(Settings::once(), &["duplicate"]).await;
    assert!(line.operator().discard(line.one_dead().await.id).await.unwrap());
    line.world.run(&remedy).await;
    with_former_name(&line).stop().await;
    line.publish(Order::ok("a"));
    line.publish(Order::ok("b"));
    line.runs_to(Settings::once(), &["duplicate", "duplicate"]).await;
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 0));
}

/// At their start and from then on.
pub async fn workers_show_that_their_handlers_are_alive<W: World>(world: W) {
    let line = Line::new(world).await;
    line.start().stop().await;
    // The handlers that the next worker has were registered before `natural`.
    let (handlers, earlier) = (line.world.own("handlers"), W::earlier("seen_at", SEEN_RECENTLY));
    line.world.run(&format!("UPDATE {handlers} SET seen_at = {earlier}")).await;
    let shown = watch::Sender::new(0);
    let (counted, mut seen) = (shown.clone(), shown.subscribe());
    let hook = move |at: &str, _: &[u8]| {
        counted.send_modify(|times| *times += usize::from(at == "seen"));
        Do::Work
    };
    let worker = line.start_over(hook, Settings::default());
    soon(seen.wait_for(|times| *times >= 2)).await.unwrap();
    worker.stop().await;
    let later = format!(
        "SELECT count(*) FROM {handlers} WHERE seen_at > (SELECT seen_at FROM {handlers} WHERE name = 'natural')"
    );
    assert_eq!(line.world.number(&later).await, 2, "the worker's one, and that of no handler");
}

/// Starts a worker, which is ready and has not yet looked whether its handlers are in the database.
async fn starts_and_looks_later<W: World>(line: &Line<W>) -> (Running, watch::Sender<bool>) {
    let (gate, asked) = (watch::Sender::new(false), watch::Sender::new(0));
    let (opens, counted, mut seen) = (gate.subscribe(), asked.clone(), asked.subscribe());
    let hook = move |at: &str, _: &[u8]| match at {
        "seen" => {
            counted.send_modify(|times| *times += 1);
            if *counted.borrow() == 1 { Do::Work } else { Do::Wait(opens.clone()) }
        }
        _ => Do::Work,
    };
    let worker = line.start_over(hook, Settings::once());
    soon(seen.wait_for(|times| *times >= 2)).await.unwrap();
    (worker, gate)
}

/// Claims that a worker writes behind the restore are those of its handler at the next start, and of no other handler.
pub async fn a_restore_of_a_backup_that_is_older_than_a_handler_repeats_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    let (worker, gate) = starts_and_looks_later(&line).await;
    let handlers = line.world.own("handlers");
    line.world.run(&format!("DELETE FROM {handlers}")).await;
    line.publish(Order::ok("a"));
    assert_eq!(line.outcomes(1).await, ["processed"]);
    // It would have got the number of the handler.
    line.store.register("shipping", &["orders", "refunds"]).await.unwrap();
    gate.send_replace(true);
    let why = soon(worker.ended()).await.unwrap_err().to_string();
    for part in ["\"billing\"", "restored", "Start the worker again"] {
        assert!(why.contains(part), "{part:?} is not in {why:?}");
    }
    line.publish(Order::ok("a"));
    line.runs_to(Settings::once(), &["duplicate"]).await;
    assert_eq!(line.effects("a").await, 1);
}

/// They do not affect any message.
pub async fn signs_of_life_that_fail_or_hang_are_no_outage<W: World>(world: W) {
    let line = Line::new(world).await;
    for (n, hangs) in [false, true].into_iter().enumerate() {
        let asked = watch::Sender::new(0);
        let (counted, mut seen) = (asked.clone(), asked.subscribe());
        let hook = move |at: &str, _: &[u8]| match at {
            "seen" => {
                counted.send_modify(|times| *times += 1);
                match (*counted.borrow(), hangs) {
                    // The start itself must not continue without a database.
                    (1, _) => Do::Work,
                    (_, true) => Do::Hang,
                    (_, false) => Do::Fail(StoreError::Unavailable("too slow".into())),
                }
            }
            // An outage would never end.
            "ping" => Do::Hang,
            _ => Do::Work,
        };
        let worker = line.start_over(hook, Settings::default());
        soon(seen.wait_for(|times| *times >= 2)).await.unwrap();
        line.publish(Order::ok(&n.to_string()));
        line.outcomes(n + 1).await;
        worker.stop_once_idle(&line.queue).await;
    }
}
