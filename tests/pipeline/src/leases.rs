//! Leases of deliveries while their batch runs, and while failures of it wait to run alone.

use std::time::Duration;

use idem_conformance::store::World;

use super::line::Line;
use super::orders::{Act, Order};
use super::together::{each_has_one_effect, ends, taken_together};

/// While a batch runs, its deliveries keep their leases.
pub async fn the_leases_of_what_runs_together_are_extended<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.lease(Some(Duration::from_secs(1)));
    let orders: Vec<Order> = (0..8).map(|n| Order::new(&n.to_string(), &[Act::Slow])).collect();
    let worker = taken_together(&line, &orders).await;
    ends(&line, worker, 8).await;
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.redeliveries, counts.stale), (10, 0, 0));
}

/// Messages that fail in a batch run again, one at a time. Those that wait for their run keep their leases.
pub async fn the_leases_of_what_waits_to_run_alone_are_extended<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.lease(Some(Duration::from_secs(1)));
    let slow = |n: usize| Order::new(&n.to_string(), &[Act::SlowFail, Act::Ok]).by_attempt();
    let orders: Vec<Order> = (0..8).map(slow).collect();
    let worker = taken_together(&line, &orders).await;
    ends(&line, worker, 16).await;
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.redeliveries, counts.stale), (10, 0, 0));
    each_has_one_effect(&line, &orders).await;
}
