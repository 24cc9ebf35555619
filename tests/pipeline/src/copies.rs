//! Copies of a message that runs.

use std::time::Duration;

use idem_core::store::{ClaimState, Consumers, Identity, Transactions};
use idem_core::{DeliveryOrder, Fingerprint, Key};

use idem_conformance::soon;
use idem_conformance::store::{Setup, World};
use idem_test::Publication;

use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;
use super::together::{each_has_one_effect, ends, numbers, taken_together};

const COPIES: u64 = 20;

/// A claim that another process holds until its transaction ends.
pub(super) async fn claimed_elsewhere<W: World>(
    line: &Line<W>,
    id: &str,
) -> (W::Store, <W::Store as Transactions>::Txn) {
    let other = line.world.store(Setup::default()).await.unwrap();
    let handler = other.register("billing", &["", "orders"]).await.unwrap()[1];
    let identity = Identity { handler, key: Key::of(id).unwrap(), fingerprint: Fingerprint::of(b"elsewhere") };
    let mut elsewhere = other.begin(Duration::from_secs(30)).await.unwrap();
    assert!(other.claim(&mut elsewhere, &[&identity], ClaimState::Processed).await.unwrap()[0].is_new());
    (other, elsewhere)
}

/// There are more copies than lanes. They wait without a lane, and are acked after the message has
/// committed. With an order, each copy comes under another ordering key.
pub async fn copies_of_a_slow_message_cost_no_lane<W: World>(world: W) {
    // Otherwise the slow message has the only writer.
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    let order = if line.world.batch() == 1 { DeliveryOrder::Key } else { DeliveryOrder::None };
    let publish = |order: Order, key| line.publish(Publication::from(order).ordering_key(key));
    let slow = Order::new("a", &[Act::Wait]);
    let worker = line.start_with(Settings { concurrency: 2, order, ..Settings::default() });
    publish(slow.clone(), 0);
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    (1..=COPIES).for_each(|key| publish(slow.clone(), key));
    soon(line.queue.delivered(1 + COPIES as usize)).await;
    for n in 0..10 {
        publish(Order::ok(&n.to_string()), COPIES + 1);
    }
    assert!(line.outcomes(10).await.iter().all(|outcome| outcome == "processed"));
    soon(line.queue.settled(10)).await;
    assert_eq!((line.queue.counts().unsettled, line.desk.runs("a")), (1 + COPIES as usize, 1));
    line.desk.go.send_replace(true);
    let outcomes = line.outcomes(11 + COPIES as usize).await;
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "duplicate").count(), COPIES as usize, "{outcomes:?}");
    worker.stop_once_idle(&line.queue).await;
    let counts = line.queue.counts();
    assert_eq!((counts.redeliveries, counts.stale), (0, 0), "{counts:?}");
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 1));
}

/// Another process runs it for as long as it likes. Here its copy waits without a lane.
pub async fn a_copy_of_a_message_that_runs_elsewhere_costs_no_lane<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    let (other, elsewhere) = claimed_elsewhere(&line, "a").await;
    let order = if line.world.batch() == 1 { DeliveryOrder::Key } else { DeliveryOrder::None };
    let publish = |id: &str, key| line.publish(Publication::from(Order::ok(id)).ordering_key(key));
    let worker = line.start_with(Settings { concurrency: 1, order, ..Settings::default() });
    publish("a", 0);
    soon(line.queue.delivered(1)).await;
    (1..=10).for_each(|n| publish(&n.to_string(), n));
    let outcomes = line.outcomes(10).await;
    assert!(outcomes.iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    let counts = line.queue.counts();
    assert_eq!((counts.unsettled, counts.redeliveries, line.desk.runs("a")), (1, 0, 0));
    other.rollback(elsewhere).await.unwrap();
    assert_eq!(line.outcomes(11).await[10], "processed");
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.effects("a").await, 1);
}

/// A copy is settled after its first: while that is held, so is the copy. The rest of the batch does not wait for them.
pub async fn a_copy_in_a_batch_is_held_with_its_first<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    let (other, elsewhere) = claimed_elsewhere(&line, "held").await;
    let mut orders = numbers(6);
    orders.extend([Order::ok("held"), Order::ok("held")]);
    let worker = taken_together(&line, &orders).await;
    soon(line.queue.settled(8)).await;
    // There is no signal that an ack will not come. One that is sent too early has arrived by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((line.queue.counts().unsettled, line.desk.runs("held")), (2, 0));
    assert!(line.outcomes(8).await.iter().all(|outcome| outcome == "processed"));

    other.rollback(elsewhere).await.unwrap();
    let outcomes = ends(&line, worker, 8).await;
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "duplicate").count(), 1);
    each_has_one_effect(&line, &orders[..7]).await;
}
