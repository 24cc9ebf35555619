//! Messages whose statements get no answer, although the database answers others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use idem_core::DeliveryOrder;
use idem_core::store::StoreError;

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

/// The calls of a method that lose their connection, for the message `bad`, until the test says otherwise.
fn lost(method: &'static str) -> (Arc<AtomicBool>, impl Fn(&'static str, &[u8]) -> Do) {
    let lost = Arc::new(AtomicBool::new(true));
    let hook = {
        let lost = lost.clone();
        move |at: &'static str, key: &[u8]| match at == method && key == b"bad" && lost.load(SeqCst) {
            true => Do::Fail(StoreError::ConnectionLost("no answer".into())),
            false => Do::Work,
        }
    };
    (lost, hook)
}

/// There is one lane, and the message leaves it after a few tries. It is processed once there is an answer.
async fn costs_no_lane<W: World>(world: W, method: &'static str, bad: Order) {
    let line = Line::new(world).await;
    let (lost, hook) = lost(method);
    let order = if line.world.batch() == 1 { DeliveryOrder::Key } else { DeliveryOrder::None };
    let publish = |order: Order, key| line.publish(Publication::from(order).ordering_key(key));
    publish(bad, 1);
    for n in 0..14 {
        publish(Order::ok(&n.to_string()), 2);
    }
    let worker = line.start_over(hook, Settings { concurrency: 1, order, ..Settings::default() });
    assert!(line.outcomes(14).await.iter().all(|outcome| outcome == "processed"));
    soon(line.queue.settled(14)).await;
    let counts = line.queue.counts();
    assert_eq!((counts.unsettled, counts.redeliveries, line.effects("bad").await), (1, 0, 0), "{counts:?}");
    lost.store(false, SeqCst);
    soon(line.queue.idle()).await;
    until(async || line.effects("bad").await != 0).await;
    worker.stop().await;
    assert_eq!((line.effects("bad").await, line.queue.counts().redeliveries), (1, 0));
}

/// Its claim gets no answer.
pub async fn a_claim_without_an_answer_costs_no_lane<W: World>(world: W) {
    costs_no_lane(world, "claim", Order::ok("bad")).await;
}

/// Its handler has failed, and the failure gets no answer.
pub async fn a_failure_whose_record_gets_no_answer_costs_no_lane<W: World>(world: W) {
    costs_no_lane(world, "insert", Order::new("bad", &[Act::Fail, Act::Ok]).by_attempt()).await;
}
