//! Natural handlers of a worker with an order: their messages have claims.

use std::time::{Duration, SystemTime};

use idem_core::DeliveryOrder;
use idem_core::store::Consumers;

use idem_conformance::store::{Setup, World};

use super::key_order::{a_while, hurry, keyed, ordered, patient, rest_are_done};
use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

/// As any other: a partition's next owner must not run a message beside its row, nor the next one before that row.
pub async fn a_natural_handler_in_an_order_waits_for_the_rows_of_its_messages<W: World>(world: W) {
    let line = Line::new(world).await;
    let a = Order::new("a", &[Act::Fail, Act::Ok]);
    line.publish_natural(a.clone());
    // Unordered, so that it is acked while its row waits.
    line.run_with(Settings { order: DeliveryOrder::None, ..patient() }, 1).await;
    line.publish_natural(keyed(1, a));
    line.publish_natural(keyed(1, Order::ok("b")));
    line.publish_natural(keyed(2, Order::ok("x")));
    let worker = line.start_with(patient());
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    a_while().await;
    assert_eq!(line.desk.log(), ["a", "x"]);
    hurry(&line).await;
    rest_are_done(&line).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log(), ["a", "x", "a", "b"]);
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 1));
}

/// However far its claims were pruned: it may run again.
pub async fn a_natural_message_in_an_order_is_never_too_old<W: World>(world: W) {
    const HOUR: Duration = Duration::from_secs(3600);
    let line = Line::with(world, Setup { retention: Some(HOUR), ..Setup::default() }).await;
    let old = || keyed(1, Order::ok("a")).published_at(SystemTime::now() - 4 * HOUR);
    line.publish_natural(old());
    line.run_with(ordered(), 1).await;
    let (claims, earlier) = (line.world.own("processed_messages"), W::earlier("processed_at", 3 * HOUR));
    line.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert_eq!(line.store.prune().await.unwrap(), 1);
    line.publish_natural(old());
    assert_eq!(line.run_with(ordered(), 2).await, ["processed"; 2]);
}

/// Each of its messages has a claim, and so a copy is a duplicate, which needs no second run.
pub async fn a_natural_message_in_an_order_has_a_claim<W: World>(world: W) {
    let line = Line::new(world).await;
    for _ in 0..2 {
        line.publish_natural(keyed(1, Order::ok("a")));
    }
    assert_eq!(line.run_with(ordered(), 2).await, ["processed", "duplicate"]);
    let claims = format!("SELECT count(*) FROM {}", line.world.own("processed_messages"));
    assert_eq!((line.desk.runs("a"), line.world.number(&claims).await), (1, 1));
}
