//! A handler that never waits: whatever it asks for is there at once, and it asks again.

use std::time::Duration;

use idem_conformance::store::World;
use idem_conformance::until;

use super::line::{Line, sorted};
use super::orders::{Act, Order};
use super::settings::Settings;

/// It uses up all that tokio allows its task in one turn, each time. Other messages go on.
pub async fn a_handler_that_never_waits_ends_at_its_timeout<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("spins", &[Act::Spin]));
    let settings = Settings { handler_timeout: Duration::from_secs(2), ..Settings::late() };
    let worker = line.start_with(settings);
    until(async || line.desk.runs("spins") != 0).await;
    line.publish(Order::ok("x"));
    line.publish(Order::ok("y"));
    let outcomes = line.outcomes(3).await;
    if W::FEATURES.concurrent {
        assert_eq!(outcomes, ["processed", "processed", "scheduled 1"], "the others have waited for it");
    }
    assert_eq!(sorted(outcomes), ["processed", "processed", "scheduled 1"]);
    worker.stop_once_idle(&line.queue).await;
    let row = &line.scheduled().await[0];
    assert!(row.error.contains("exceeded its timeout"), "{:?}", row.error);
    assert_eq!((row.attempts, line.desk.runs("spins"), line.effects("spins").await), (1, 1, 0));
    assert_eq!((line.effects("x").await, line.effects("y").await), (1, 1));
    let counts = line.queue.counts();
    assert_eq!((counts.redeliveries, counts.stale), (0, 0));
}
