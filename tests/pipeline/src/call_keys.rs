//! The keys of messages that come again from a rewound stream, behind a backup that was restored.

use std::marker::PhantomData;
use std::time::Duration;

use idem_core::store::Replayed;
use idem_core::{BoxError, CalledBy, Delivery, DeliveryOrder, Handler, Reason, State};

use idem_conformance::store::World;
use idem_test::Publication;

use super::desk::Desk;
use super::line::Line;
use super::orders::Order;
use super::paying::{Pay, Paying, Pays, Starts};
use super::running::Running;
use super::settings::Settings;

/// A position in a stream.
pub(super) const POSITION: &str = "ORDERS/7@1700000000000000000";

/// The order `a` at this position.
pub(super) fn order_at(position: &str) -> Publication {
    Publication::from(Order::ok("a")).position(position)
}

/// Lets a worker complete this message, which is the order `a`.
pub(super) async fn comes<W: World>(paying: &Paying<W>, worker: Running, message: Publication) {
    paying.0.publish(message);
    paying.completed("a").await;
    worker.stop_once_idle(&paying.0.queue).await;
}

/// The database knows nothing of the order any more: its row, its claim and its effect are gone.
pub(super) async fn forget<W: World>(paying: &Paying<W>) {
    let world = &paying.0.world;
    for table in [world.own("inbox_messages"), world.own("processed_messages"), world.name("effects")] {
        world.run(&format!("DELETE FROM {table}")).await;
    }
}

/// The handler of orders that are paid for, under another name.
struct Renamed<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Renamed<W> {
    const NAME: &'static str = "renamed";
    const EVENT: Option<&'static str> = Some("Order");

    type Params = (State<Desk>, Delivery, CalledBy<Pay<true, true>>);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, params: Self::Params, tx: &mut W::Connection) -> Result<(), BoxError> {
        Pays::<W, true, true>::handle(order, params, tx).await
    }
}

/// Gives the registered handler the other name.
pub(super) async fn rename<W: World>(paying: &Paying<W>) {
    let handlers = paying.0.world.own("handlers");
    paying.0.world.run(&format!("UPDATE {handlers} SET name = 'renamed' WHERE name = 'pays'")).await;
}

/// Starts a worker whose handler has the other name.
fn start_renamed<W: World>(line: &Line<W>) -> Running {
    line.run_until_stopped(line.worker().handler::<Renamed<W>>(), Settings::default())
}

/// The backup is from before the order came. The stream is rewound to get it back, and the provider recognizes the key.
pub async fn a_message_that_comes_again_behind_a_restored_backup_is_charged_once<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    forget(&paying).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    assert!(paying.has_one_key("a"));
}

/// Starts a worker that starts payments for events, and takes all events together that are there, if it takes batches.
fn start_for_events<W: World>(line: &Line<W>) -> Running {
    let worker = line.worker().handler::<Starts<W>>().handler::<Pays<W, true, true>>();
    let together = Settings { concurrency: 1, linger: Duration::from_millis(100), ..Settings::default() };
    line.run_until_stopped(worker, together)
}

/// The events come again that start the payments. There are two, which come together at first, and one after the other behind
/// the restored backup.
pub async fn a_local_message_that_comes_again_behind_a_restored_backup_is_charged_once<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    let line = &paying.0;
    let publish = |(id, position): (&str, &str)| {
        line.publish_raw(Publication::from(Order::ok(id)).event_type("Start").position(position));
    };
    let events = [("a", POSITION), ("b", "ORDERS/8@1700000000000000000")];
    events.into_iter().for_each(publish);
    let worker = start_for_events(line);
    for (id, _) in events {
        paying.completed(id).await;
    }
    worker.stop_once_idle(&line.queue).await;
    forget(&paying).await;
    let worker = start_for_events(line);
    for event in events {
        publish(event);
        paying.completed(event.0).await;
    }
    worker.stop_once_idle(&line.queue).await;
    for (id, _) in events {
        assert_eq!(paying.counts(id).await, (1, 2, 1), "{id}");
        assert!(paying.has_one_key(id), "{id}");
    }
}

/// It was too large for the worker to which it came again, so its row has no key of the message, and none of the call. It gets
/// both when it is replayed.
pub async fn an_undeliverable_message_that_is_replayed_behind_a_restored_backup_is_charged_once<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    forget(&paying).await;
    paying.0.publish(order_at(POSITION));
    let worker = paying.start_with(Settings { max_payload: 10, ..Settings::default() });
    let undeliverable = paying.dead().await;
    worker.stop().await;
    assert_eq!((undeliverable.reason, undeliverable.provider_key), (Some(Reason::TooLarge), None));
    assert_eq!(paying.0.operator().replay(undeliverable.id).await.unwrap(), Replayed::Due);
    paying.completes("a").await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    assert!(paying.has_one_key("a"));
}

/// The worker has an order, and the broker marks the message as redelivered.
pub async fn a_redelivered_message_with_an_order_is_charged_once_behind_a_restored_backup<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    forget(&paying).await;
    paying.0.publish_redelivered(order_at(POSITION)).await;
    let worker = paying.start_with(Settings { order: DeliveryOrder::Key, ..Settings::default() });
    paying.completed("a").await;
    worker.stop_once_idle(&paying.0.queue).await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    assert!(paying.has_one_key("a"));
}

/// A version of the service without the call has stored it, and gave it no key.
pub async fn a_row_that_is_left_to_its_call_has_the_key_of_its_message<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.0.publish(order_at(POSITION));
    let (worker, _) = paying.start_that_hangs_in("fetch_calls");
    let stored = paying.row(|row| row.calls == Some(0)).await;
    worker.crash().await;
    let inbox = paying.0.world.own("inbox_messages");
    paying.0.world.run(&format!("UPDATE {inbox} SET state = 'scheduled', provider_key = NULL")).await;
    paying.completes("a").await;
    assert_eq!(paying.provider().requests("a"), [stored.provider_key.map(|key| key.to_string())]);
}

/// It keeps its number, and with it its claims and the namespace of its calls.
pub async fn a_renamed_handler_calls_under_the_same_keys<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    comes(&paying, paying.start(), order_at(POSITION)).await;
    rename(&paying).await;
    forget(&paying).await;
    comes(&paying, start_renamed(&paying.0), order_at(POSITION)).await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    assert!(paying.has_one_key("a"));
}
