//! What a worker says at its start of natural handlers and latest versions, and the SQL that it names.

use idem_core::store::{Operator, SEEN_RECENTLY};
use idem_core::{ReplayWindow, Worker};
use tracing::instrument::WithSubscriber;

use crate::conformance::soon;
use crate::conformance::store::World;
use crate::{Publication, captured};

use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;
use super::versions::{NATURAL, RENAMED, Versions, log_of, run};

/// The number of latest versions, and the lowest of them.
async fn versions<W: World>(line: &Line<W>) -> (i64, i64) {
    let number = async |what: &str| {
        let versions = line.world.own("latest_versions");
        line.world.number(&format!("SELECT {what} FROM {versions}")).await
    };
    (number("count(*)").await, number("min(version)").await)
}

/// A merge would take the versions away from the rows, which may as well run under the old name.
pub async fn latest_versions_beside_inbox_rows_are_named_with_the_rename_and_no_merge<W: World>(world: W) {
    let line = Line::new(world).await;
    run::<W, NATURAL>(&line, Settings::default(), [Order::ok("a"), Order::new("b", &[Act::Commit])], 1).await;
    let log = log_of::<W, RENAMED>(&line).await;
    let cures = line.store.cures("billing", "versions", "renamed");
    let warning = log.lines().find(|text| text.contains("WARN") && text.contains("latest versions"));
    assert!(warning.is_some_and(|text| text.contains(&cures.rename)), "{log}");
    assert!(!log.contains(&cures.merge), "{log}");
    line.world.run(&cures.rename).await;
    run::<W, RENAMED>(&line, Settings::default(), [Order::ok("a")], 1).await;
    assert_eq!((line.effects("a").await, line.one_dead().await.handler.as_str()), (1, "renamed"));
}

/// The name to which they were merged has processed nothing, so nothing but the versions tells of it.
pub async fn merged_latest_versions_are_named_once_the_handler_has_its_old_name_again<W: World>(world: W) {
    let line = Line::new(world).await;
    run::<W, NATURAL>(&line, Settings::default(), [Order::ok("a")], 0).await;
    // The start has registered the new name.
    log_of::<W, RENAMED>(&line).await;
    line.world.run(&line.store.cures("billing", "versions", "renamed").merge).await;
    let back = line.store.cures("billing", "renamed", "versions").merge;
    let log = log_of::<W, NATURAL>(&line).await;
    assert!(log.contains(&back) && log.contains("newer state"), "{log}");
    line.world.run(&back).await;
    assert!(!log_of::<W, NATURAL>(&line).await.contains("latest versions"));
    run::<W, NATURAL>(&line, Settings::default(), [Order::ok("a")], 0).await;
    assert_eq!(line.effects("a").await, 1);
}

/// Fills versions by hand under the new name, which is registered. Returns the statements that rename the old one.
async fn fill<W: World>(line: &Line<W>) -> String {
    let (versions, handlers) = (line.world.own("latest_versions"), line.world.own("handlers"));
    let filled = format!(
        "INSERT INTO {versions} (handler_id, entity, version) SELECT n.id, v.entity, 5 \
         FROM {versions} AS v, {handlers} AS n WHERE n.name = 'renamed'"
    );
    line.world.run(&filled).await;
    let merge = line.store.cures("billing", "renamed", "versions").merge;
    format!("{merge}; {}", line.store.cures("billing", "versions", "renamed").rename)
}

/// They are no history: the handler may still be another one under a new name. The statement keeps the versions of both.
pub async fn latest_versions_filled_by_hand_under_a_new_name_survive_its_rename<W: World>(world: W) {
    let line = Line::new(world).await;
    run::<W, NATURAL>(&line, Settings::default(), [Order::ok("a")], 0).await;
    log_of::<W, RENAMED>(&line).await;
    let cure = fill(&line).await;
    assert_eq!(versions(&line).await, (2, 1));
    let log = log_of::<W, RENAMED>(&line).await;
    assert!(log.contains(&cure), "{log}");
    line.world.run(&cure).await;
    assert_eq!(versions(&line).await, (1, 5));
    let log = log_of::<W, RENAMED>(&line).await;
    assert!(!log.contains("latest versions") && !log.contains("count as new"), "{log}");
}

/// The rename alone would fail, since the new name has versions. The start is refused because of an inbox row.
pub async fn a_refused_start_names_a_rename_that_moves_the_latest_versions_of_the_new_name<W: World>(world: W) {
    let line = Line::new(world).await;
    run::<W, NATURAL>(&line, Settings::default(), [Order::ok("a"), Order::new("b", &[Act::Commit])], 1).await;
    log_of::<W, RENAMED>(&line).await;
    let cure = fill(&line).await;
    let (handlers, earlier) = (line.world.own("handlers"), W::earlier("seen_at", 2 * SEEN_RECENTLY));
    line.world.run(&format!("UPDATE {handlers} SET seen_at = {earlier} WHERE name = 'versions'")).await;
    let worker = Worker::new("billing", line.store.clone(), line.queue.clone()).state(line.desk.clone());
    let worker = line.run_until_stopped(worker.handler::<Versions<W, RENAMED>>(), Settings::default());
    let refused = worker.refused().await;
    assert!(refused.contains(&cure), "{cure:?} is not in {refused:?}");
    line.world.run(&cure).await;
    run::<W, RENAMED>(&line, Settings::default(), [Order::ok("a")], 1).await;
    assert_eq!((line.effects("a").await, line.one_dead().await.handler.as_str()), (1, "renamed"));
}

/// An operator may put another name in the place of the one in the statement.
pub async fn a_merge_into_a_handler_that_is_not_there_changes_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    run::<W, NATURAL>(&line, Settings::default(), [Order::ok("a")], 0).await;
    for name in ["misspelled", "versions"] {
        line.world.run(&line.store.cures("billing", "versions", name).merge).await;
        assert_eq!(versions(&line).await, (1, 1), "{name}");
    }
}

/// It is never too old itself, but those that get what it stages do not know its ids for longer than they keep claims.
pub async fn a_natural_handler_that_stages_is_warned_of_what_it_stages_for_late_copies<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.replay_window(ReplayWindow::Unlimited);
    line.publish_raw(Publication::from(Order::ok("a")));
    let worker = Worker::new("billing", line.store.clone(), line.queue.clone()).state(line.desk.clone());
    let ((text, subscriber), idle) = (captured(), line.queue.clone());
    let run = worker.handler::<Versions<W, NATURAL>>().run_until(async move { idle.idle().await });
    soon(run.with_subscriber(subscriber)).await.unwrap();
    let text = text.to_string();
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("without a limit of time")).collect();
    let [warning] = &warnings[..] else { panic!("{text}") };
    assert!(warning.contains("stages them again") && warning.contains("retention=7 days"), "{warning}");
    assert!(!warning.contains("too old"), "{warning}");
}
