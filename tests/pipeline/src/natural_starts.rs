//! What a worker says at its start of natural handlers.

use idem_core::ReplayWindow;
use tracing::instrument::WithSubscriber;

use idem_conformance::captured;
use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::Publication;

use super::line::Line;
use super::once::{NATURAL, Once};
use super::orders::Order;

/// It is never too old itself, but those that get what it stages do not know its ids for longer than they keep claims.
pub async fn a_natural_handler_that_stages_is_warned_of_what_it_stages_for_late_copies<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.replay_window(ReplayWindow::Unlimited);
    line.publish_raw(Publication::from(Order::ok("a")));
    let worker = line.worker();
    let ((text, subscriber), idle) = (captured(), line.queue.clone());
    let run = worker.handler::<Once<W, NATURAL>>().run_until(async move { idle.idle().await });
    soon(run.with_subscriber(subscriber)).await.unwrap();
    let text = text.to_string();
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("without a limit of time")).collect();
    let [warning] = &warnings[..] else { panic!("{text}") };
    assert!(warning.contains("stages them again") && warning.contains("retention=7 days"), "{warning}");
    assert!(!warning.contains("too old"), "{warning}");
}
