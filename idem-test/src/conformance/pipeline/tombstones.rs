//! Deliveries without a payload.

use std::marker::PhantomData;

use idem_core::{BoxError, Delivery, Handler, Key, KeyError, Reason, State};

use crate::Publication;

use super::orders::{Act, Desk};
use super::{Line, Order, World};

/// A handler that takes tombstones: of the type of event `Row`, by its message id. Its effect is that of the order, or
/// `gone` without one.
pub(super) struct Rows<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Rows<W> {
    const NAME: &'static str = "rows";
    const EVENT: Option<&'static str> = Some("Row");
    const TOMBSTONES: bool = true;

    type Message = Option<Order>;
    type Params = (State<Desk>, Delivery);
    type Connection = W::Connection;

    fn key(_: &Option<Order>, delivery: &Delivery) -> Result<Key, KeyError> {
        Key::of(delivery.message_id().unwrap_or_default())
    }

    async fn handle(
        order: Option<Order>,
        (desk, delivery): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let fails = delivery.headers().get("fails").is_some();
        let order = order
            .unwrap_or_else(|| Order::new("gone", if fails { &[Act::Ok, Act::Fail, Act::Ok] } else { &[Act::Ok] }));
        super::orders::Orders::<W>::handle(order, (desk, delivery), tx).await
    }
}

fn row(id: &str) -> Publication {
    Publication::tombstone().message_id(id).event_type("Row")
}

/// `None` directly, and `None` again from the inbox.
pub async fn a_tombstone_reaches_a_handler_that_takes_it<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_raw(row("a"));
    line.publish_raw(row("a"));
    let mut outcomes = line.run(2).await;
    outcomes.sort();
    assert_eq!(outcomes, ["duplicate", "processed"]);
    assert_eq!(line.effects("gone").await, 1);

    line.publish_raw(row("b").header("fails", "once"));
    assert_eq!(line.run(4).await[2..], ["parked 1", "processed"]);
    assert_eq!((line.desk.runs("gone"), line.effects("gone").await), (3, 2));
}

/// The text names the cure, and the row stays a tombstone.
pub async fn a_tombstone_for_a_handler_that_takes_none_is_dead_and_kept<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Publication::tombstone());
    line.publish(Publication::new(""));
    let outcomes = line.run(2).await;
    assert_eq!(outcomes, ["dead: undecodable", "dead: undecodable"]);
    let mut dead = line.dead().await;
    // An empty body is another message, and both are kept.
    assert_eq!(dead.len(), 2, "{dead:?}");
    dead.sort_by_key(|row| row.delivery.is_tombstone());
    let [empty, tombstone] = &dead[..] else { unreachable!() };
    assert!(!empty.delivery.is_tombstone() && tombstone.delivery.is_tombstone());
    assert_eq!(tombstone.reason, Some(Reason::Undecodable));
    assert!(tombstone.error.contains("`orders`") && tombstone.error.contains("Option"), "{}", tombstone.error);
    assert!(!empty.error.contains("Option"), "{}", empty.error);
}
