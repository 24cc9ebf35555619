//! Several handlers at one queue.

use idem_core::{Reason, Worker};

use crate::Publication;

use super::orders::Orders;
use super::{Line, Order, Settings, World};

fn both() -> Settings {
    Settings { both: true, ..Settings::default() }
}

/// One key under two handlers is two messages.
pub async fn the_type_of_event_chooses_the_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    for event in ["Order", "Refund", "Order"] {
        line.publish_raw(Publication::from(Order::ok("a")).event_type(event));
    }
    let mut outcomes = line.run_with(both(), 3).await;
    outcomes.sort();
    assert_eq!(outcomes, ["duplicate", "processed", "processed"]);
    assert_eq!((line.effects("a").await, line.effects("refund a").await), (1, 1));
}

/// The type may come in a header.
pub async fn a_header_chooses_the_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_raw(Publication::from(Order::ok("a")).header("ce-type", "Refund").event_type("Order"));
    line.publish_raw(Publication::from(Order::ok("b")).event_type("Order"));
    let settings = Settings { event_type: Some("ce-type"), ..both() };
    let mut outcomes = line.run_with(settings, 2).await;
    outcomes.sort();
    assert_eq!(outcomes, ["dead: unknown type", "processed"]);
    assert_eq!((line.effects("refund a").await, line.effects("a").await), (1, 0));
}

/// Never a silent skip.
pub async fn an_unknown_type_is_dead_and_kept_whole<W: World>(world: W) {
    let line = Line::new(world).await;
    let order = Publication::from(Order::ok("a"));
    line.publish_raw(order.clone().event_type("Invoice"));
    line.publish_raw(order.clone());
    let outcomes = line.run(2).await;
    assert_eq!(outcomes, ["dead: unknown type", "dead: unknown type"]);
    let dead = line.dead().await;
    assert_eq!(dead.len(), 2, "an event without a type is another message");
    for dead in dead {
        assert_eq!((dead.reason, dead.sightings, dead.handler.as_str()), (Some(Reason::UnknownType), 1, ""));
        assert_eq!(dead.delivery.payload(), &order.payload);
    }
    assert_eq!(line.desk.runs("a"), 0);
}

/// They would share their claims.
pub async fn two_handlers_of_one_name_refuse_the_start<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = Worker::new("billing", line.store.clone(), line.queue.clone()).state(line.desk.clone());
    let worker = worker.handler::<Orders<W>>().handler::<Orders<W>>();
    let refused = worker.run_until(std::future::ready(())).await.unwrap_err().to_string();
    assert!(refused.contains("orders"), "{refused}");
}
