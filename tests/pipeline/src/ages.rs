//! Messages older than the retention of claims.

use std::time::{Duration, SystemTime};

use idem_core::store::{Consumers, Replayed};
use idem_core::{Reason, ReplayWindow};
use tracing::instrument::WithSubscriber;

use idem_conformance::captured;
use idem_conformance::soon;
use idem_conformance::store::{Setup, World};
use idem_test::Publication;

use super::line::Line;
use super::orders::{Act, Order, Orders};
use super::settings::Settings;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Claims are kept for an hour, and one that was three hours old was pruned.
async fn pruned<W: World>(world: W) -> Line<W> {
    let line = Line::with(world, Setup { retention: Some(HOUR), ..Setup::default() }).await;
    line.publish(Order::ok("seen"));
    line.run(1).await;
    prune(&line, 3 * HOUR).await;
    line
}

/// Moves all claims back by `age`, then prunes them.
async fn prune<W: World>(line: &Line<W>, age: Duration) {
    let (claims, earlier) = (line.world.own("processed_messages"), W::earlier("processed_at", age));
    line.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert!(line.store.prune().await.unwrap() > 0);
}

fn ago(order: Order, age: Duration) -> Publication {
    Publication::from(order).published_at(SystemTime::now() - age)
}

/// Nothing can show whether it was processed; this one was.
pub async fn a_message_older_than_the_pruned_claims_is_dead_as_too_old<W: World>(world: W) {
    let line = pruned(world).await;
    line.publish(ago(Order::ok("seen"), 3 * HOUR + MINUTE));
    assert_eq!(line.run(2).await[1], "dead: too old");
    line.publish(ago(Order::ok("seen"), 3 * HOUR + MINUTE));
    assert_eq!(line.run(3).await[2], "duplicate");
    assert_eq!((line.effects("seen").await, line.desk.runs("seen")), (1, 1));
    let dead = line.one_dead().await;
    assert_eq!((dead.reason, dead.attempts), (Some(Reason::TooOld), 0));
    assert!(dead.error.contains("3h") && dead.error.contains(".retention("), "{}", dead.error);

    assert_eq!(line.operator().replay(dead.id).await.unwrap(), Replayed::NeedsForce);
    assert_eq!(line.operator().replay_by_force(dead.id).await.unwrap(), Replayed::Due);
    assert_eq!(line.run(4).await[3], "processed");
    assert_eq!(line.effects("seen").await, 2, "as the operator was told");
}

/// A message that the broker marks as redelivered is checked when it is stored.
pub async fn a_redelivered_message_that_is_too_old_is_dead_and_never_run<W: World>(world: W) {
    let line = pruned(world).await;
    line.publish_redelivered(ago(Order::ok("a"), 4 * HOUR)).await;
    assert_eq!(line.run(2).await[1], "dead: too old");
    assert_eq!((line.desk.runs("a"), line.one_dead().await.reason), (0, Some(Reason::TooOld)));
}

/// No claim of its time was pruned, however old it is; a margin allows for clock differences.
pub async fn a_message_younger_than_the_pruned_claims_is_processed<W: World>(world: W) {
    let line = pruned(world).await;
    line.publish(ago(Order::ok("within the margin"), 3 * HOUR - 3 * MINUTE));
    assert_eq!(line.run(2).await[1], "dead: too old");
    line.publish(ago(Order::ok("beyond the margin"), 3 * HOUR - 8 * MINUTE));
    line.publish(ago(Order::ok("older than the retention"), 2 * HOUR));
    line.publish_redelivered(ago(Order::ok("redelivered"), 2 * HOUR)).await;
    line.publish(ago(Order::ok("fresh"), Duration::ZERO));
    line.publish(Order::ok("without a clock"));
    // Storing a redelivered message is an outcome unless every message is stored.
    line.run(8 - usize::from(line.world.inbox())).await;
    for id in ["beyond the margin", "older than the retention", "redelivered", "fresh", "without a clock"] {
        assert_eq!(line.effects(id).await, 1, "{id}");
    }
    assert_eq!(line.dead().await.len(), 1);
}

/// None of its claims was pruned, whatever was pruned for other consumers.
pub async fn a_new_consumer_reads_a_long_history<W: World>(world: W) {
    let line = pruned(world).await;
    let shipping = Settings { consumer: "shipping", ..Settings::default() };
    line.publish(ago(Order::ok("history"), 1000 * 24 * HOUR));
    assert_eq!(line.run_with(shipping, 2).await[1], "processed");
    assert_eq!(line.effects("history").await, 1);
}

/// Two services in one schema: each handler's claims are kept for the retention of its own worker.
pub async fn a_short_retention_prunes_no_claims_of_another_service<W: World>(world: W) {
    let mut line = Line::with(world, Setup { retention: Some(30 * DAY), ..Setup::default() }).await;
    line.publish(Order::ok("kept"));
    line.run(1).await;
    let short = Setup { retention: Some(Duration::from_secs(1)), ..Setup::default() };
    let long = std::mem::replace(&mut line.store, line.world.store(short).await.unwrap());
    line.publish(Order::ok("forgotten"));
    line.run_with(Settings { consumer: "shipping", ..Settings::default() }, 2).await;
    let (claims, earlier) = (line.world.own("processed_messages"), W::earlier("processed_at", HOUR));
    line.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert_eq!(line.store.prune().await.unwrap(), 1, "only its own");

    line.store = long;
    line.publish(ago(Order::ok("kept"), HOUR + MINUTE));
    assert_eq!(line.run(3).await[2], "duplicate");
    assert_eq!((line.effects("kept").await, line.desk.runs("kept")), (1, 1));
}

/// Two versions of a service: claims are kept for the longer of the two retentions. Once an operator has lowered it, a
/// message between the two is too old for the version with the longer retention, and never runs twice.
pub async fn of_two_retentions_the_greater_one_wins_until_an_operator_lowers_it<W: World>(world: W) {
    let mut line = Line::with(world, Setup { retention: Some(30 * DAY), ..Setup::default() }).await;
    line.publish(Order::ok("seen"));
    line.run(1).await;
    let short = Setup { retention: Some(HOUR), ..Setup::default() };
    let long = std::mem::replace(&mut line.store, line.world.store(short).await.unwrap());
    line.publish(Order::ok("younger"));
    line.run(2).await;
    let (claims, earlier) = (line.world.own("processed_messages"), W::earlier("processed_at", 3 * HOUR));
    line.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert_eq!(line.store.prune().await.unwrap(), 0, "the other version may need them");

    let (handlers, lower) = (line.world.own("handlers"), W::earlier("retention", 30 * DAY - HOUR));
    line.world.run(&format!("UPDATE {handlers} SET retention = {lower}")).await;
    assert_eq!(long.prune().await.unwrap(), 2);
    line.publish(ago(Order::ok("seen"), 3 * HOUR + MINUTE));
    line.store = long;
    assert_eq!(line.run(3).await[2], "dead: too old");
    assert_eq!((line.effects("seen").await, line.desk.runs("seen")), (1, 1));
}

/// It has a claim, which is never pruned, so that it can wait for any time.
pub async fn a_row_of_the_inbox_is_never_too_old<W: World>(world: W) {
    let line = Line::with(world, Setup { retention: Some(HOUR), ..Setup::default() }).await;
    line.publish(ago(Order::new("a", &[Act::Fail, Act::Ok]), 4 * HOUR));
    line.run_with(Settings::late(), 1).await;
    line.publish(Order::ok("seen"));
    line.run(2).await;
    prune(&line, 3 * HOUR).await;
    let (inbox, earlier) = (line.world.own("inbox_messages"), W::due_earlier(3 * HOUR));
    line.world.run(&format!("UPDATE {inbox} SET {earlier}")).await;
    assert_eq!(line.run(3).await, ["scheduled 1", "processed", "processed"]);
    assert_eq!(line.effects("a").await, 1);
}

/// A worker looks for rows that became due since its last poll, and every few seconds for all due rows.
pub async fn a_row_that_was_due_long_ago_is_found_by_a_worker_that_runs<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Fail, Act::Ok]));
    let worker = line.start_with(Settings::late());
    line.outcomes(1).await;
    line.publish(Order::ok("b"));
    line.outcomes(2).await;
    let (inbox, earlier) = (line.world.own("inbox_messages"), W::due_earlier(9 * HOUR));
    line.world.run(&format!("UPDATE {inbox} SET {earlier}")).await;
    assert_eq!(line.outcomes(3).await, ["scheduled 1", "processed", "processed"]);
    worker.stop().await;
}

/// It is no error, since a message that comes again later is a dead letter where the broker has a clock.
pub async fn a_broker_that_keeps_messages_without_a_limit_is_a_warning<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.replay_window(ReplayWindow::Unlimited);
    line.publish(Order::ok("a"));
    let worker = line.worker();
    let ((text, subscriber), idle) = (captured(), line.queue.clone());
    let run = worker.handler::<Orders<W>>().run_until(async move { idle.idle().await });
    soon(run.with_subscriber(subscriber)).await.unwrap();
    let text = text.to_string();
    let warning = text.lines().find(|line| line.contains("WARN")).unwrap();
    for part in ["without a limit of time", "source=\"orders\"", "retention=7 days", "too old", "counts as new"] {
        assert!(warning.contains(part), "{part:?} is not in {warning:?}");
    }
}

/// The text names both durations and the remedies.
pub async fn a_broker_that_keeps_messages_for_longer_refuses_the_start<W: World>(world: W) {
    let line = Line::new(world).await;
    let day = 24 * HOUR;
    line.publish(Order::ok("a"));
    line.broker.replay_window(ReplayWindow::Within(8 * day));
    let refused = line.start().refused().await;
    for said in ["orders", "8 days", "7 days", ".retention(", "lower the broker's retention"] {
        assert!(refused.contains(said), "{refused}");
    }
    let counts = line.queue.counts();
    assert_eq!((counts.ready, counts.acks, line.desk.runs("a")), (1, 0, 0));
    for (n, window) in
        [ReplayWindow::Within(7 * day), ReplayWindow::Unlimited, ReplayWindow::Unknown].into_iter().enumerate()
    {
        line.broker.replay_window(window);
        line.publish(Order::ok(&n.to_string()));
        line.run(n + 2).await;
    }
}
