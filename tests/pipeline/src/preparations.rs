//! Preparations of codecs that hang or are forgotten.

use std::time::Duration;

use idem_core::DeliveryOrder;

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::Publication;

use super::crashes::schedule_delivery;
use super::line::Line;
use super::orders::{Act, Order};
use super::schemas::{Answer, Registry, handlers, of_schema, of_schema_v1, patient, rows, schema_header};
use super::settings::Settings;

/// The preparations of one handler leave room for those of another one.
pub async fn a_registry_that_hangs_delays_no_other_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    let (orders, refunds) = handlers(&line).await;
    for n in 0..70 {
        schedule_delivery(&line, orders, &n.to_string(), of_schema_v1(&n.to_string())).await;
    }
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    registry.answers("v2", Answer::Known);
    let worker = line.start_with_codec(registry.codec(), Settings { both: true, ..patient() });
    registry.asked(1).await;
    // The others of its handler are snoozed.
    tokio::time::sleep(Duration::from_secs(1)).await;
    schedule_delivery(&line, refunds, "b", of_schema_v1("b").with_headers(schema_header("v2"))).await;
    assert_eq!(line.outcomes(1).await, ["processed"]);
    assert_eq!(line.effects("refund b").await, 1);
    worker.stop().await;
}

/// It occupies no lane and no slot: with fewer of both than there are such messages, all others are processed. One of its
/// handler is asked for at a time, here a row.
pub async fn a_preparation_that_hangs_holds_up_nothing_but_its_message<W: World>(world: W) {
    let line = Line::new(world).await;
    let stuck = ["a", "b", "c"];
    rows(&line, "v1", &stuck).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    registry.answers("v2", Answer::Hang);
    let settings = Settings { concurrency: 2, inbox_concurrency: 1, ..patient() };
    let worker = line.start_with_codec(registry.codec(), settings);
    registry.asked(1).await;
    line.publish(of_schema("v2", Order::ok("direct")));
    line.publish_numbers(0..20);
    line.publish(Order::new("retried", &[Act::Fail, Act::Ok]).by_attempt());
    assert_eq!(line.outcomes(25).await[3..].iter().filter(|outcome| *outcome == "processed").count(), 21);
    assert_eq!((line.effects("retried").await, line.dead().await.len(), registry.times_asked()), (1, 0, 1));
    registry.answers("v1", Answer::Known);
    registry.answers("v2", Answer::Known);
    assert!(line.outcomes(29).await[25..].iter().all(|outcome| outcome == "processed"));
    worker.stop_once_idle(&line.queue).await;
    for id in stuck.iter().chain(&["direct"]) {
        assert_eq!(line.effects(id).await, 1, "{id}");
    }
}

/// A preparation that takes too long is dropped and retried after a while.
pub async fn a_preparation_that_hangs_is_tried_again<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["row"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    registry.answers("v2", Answer::Hang);
    let settings = Settings { prepare_timeout: Duration::from_millis(50), ..Settings::default() };
    let worker = line.start_with_codec(registry.codec(), settings);
    line.publish(of_schema("v2", Order::ok("direct")));
    registry.asked(6).await;
    assert!(line.dead().await.is_empty());
    registry.answers("v1", Answer::Known);
    registry.answers("v2", Answer::Known);
    assert_eq!(line.outcomes(3).await, ["scheduled 1", "processed", "processed"]);
    worker.stop_once_idle(&line.queue).await;
}

/// A codec that forgets what it has fetched is asked less and less often, and produces no dead letter.
pub async fn a_codec_that_forgets_its_preparation_is_tried_again<W: World>(world: W) {
    let line = Line::new(world).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Forgotten);
    let worker = line.start_with_codec(registry.codec(), Settings::default());
    line.publish(of_schema("v1", Order::ok("a")));
    registry.asked(3).await;
    // Without the delay it would be thousands.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(registry.times_asked() < 10, "{}", registry.times_asked());
    registry.answers("v1", Answer::Known);
    assert_eq!(line.outcomes(1).await, ["processed"]);
    worker.stop().await;
}

/// A message that waits for its preparation goes back to the broker, and its preparation ends.
pub async fn a_drain_releases_what_its_codec_prepares_for<W: World>(world: W) {
    let line = Line::new(world).await;
    rows(&line, "v1", &["row"]).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    let worker = line.start_with_codec(registry.codec(), patient());
    line.publish(of_schema("v1", Order::ok("a")));
    registry.asked(1).await;
    soon(line.queue.delivered(1)).await;
    worker.stop().await;
    let counts = line.queue.counts();
    assert_eq!((counts.acks, counts.ready, counts.unsettled), (1, 1, 0), "{counts:?}");
    registry.answers("v1", Answer::Known);
    let worker = line.start_with_codec(registry.codec(), patient());
    line.outcomes(if line.world.inbox() { 3 } else { 4 }).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.effects("a").await, line.effects("row").await, line.scheduled().await.len()), (1, 1, 0));
}

/// A first delivery and a redelivery: no message of its ordering key passes it, and other keys do not wait for it.
pub async fn a_delivery_whose_codec_prepares_keeps_its_place<W: World>(world: W) {
    let line = Line::new(world).await;
    let registry = Registry::default();
    registry.answers("v1", Answer::Hang);
    let keyed = |key: u64, message: Publication| message.ordering_key(key);
    let plain = |id: &str| Publication::from(Order::ok(id));
    line.publish_redelivered(keyed(1, of_schema("v1", Order::ok("again")))).await;
    line.publish(keyed(1, plain("behind it")));
    line.publish(keyed(2, of_schema("v1", Order::ok("first"))));
    line.publish(keyed(2, plain("behind the first")));
    let settings = Settings { concurrency: 1, order: DeliveryOrder::Key, ..patient() };
    let worker = line.start_with_codec(registry.codec(), settings);
    registry.asked(1).await;
    for n in 0..10 {
        line.publish(keyed(3, plain(&n.to_string())));
    }
    assert!(line.outcomes(10).await.iter().all(|outcome| outcome == "processed"));
    assert_eq!(line.desk.runs("behind it") + line.desk.runs("behind the first"), 0);
    registry.answers("v1", Answer::Known);
    line.outcomes(15).await;
    worker.stop_once_idle(&line.queue).await;
    let log = line.desk.log();
    let place = |id: &str| log.iter().position(|ran| ran == id).unwrap();
    assert!(place("again") < place("behind it") && place("first") < place("behind the first"), "{log:?}");
}
