//! Leases of deliveries while their batch runs, and while failures of it wait to run alone.

use std::time::Duration;

use idem_conformance::store::World;
use idem_core::{Acker, BoxError, Delivery, Settled};
use idem_test::tap::{AckTap, Tap, Tapped};

use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;
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

/// A broker whose answer to an ack takes longer than a lease.
struct Late;

impl Tap for Late {
    type Ack = Self;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, Self) {
        (delivery, Self)
    }
}

impl AckTap for Late {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        let settled = acker.ack().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        settled
    }
}

/// A message that has to run alone begins once the others of its batch are acked.
pub async fn an_ack_that_is_answered_late_costs_its_neighbours_no_lease<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.lease(Some(Duration::from_secs(1)));
    let orders = [Order::ok("a"), Order::new("b", &[Act::Fail, Act::Ok])];
    orders.iter().for_each(|order| line.publish(order.clone()));
    let settings = Settings { concurrency: 1, linger: Duration::from_millis(300), ..Settings::default() };
    let worker = line.start_at(Tapped::new(line.queue.clone(), Late), settings);
    assert_eq!(line.outcomes(2).await, ["processed"; 2]);
    worker.stop_once_idle(&line.queue).await;
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.redeliveries, counts.stale), (2, 0, 0));
    each_has_one_effect(&line, &orders).await;
}
