//! Deliveries without a payload.

use std::marker::PhantomData;

use idem_core::{BoxError, Delivery, Handler, Key, KeyError, PartitionKey, Reason, Source, State, Subject, Worker};

use idem_conformance::store::World;
use idem_test::tap::Tap;
use idem_test::{Publication, Tapped};

use super::desk::Desk;
use super::handlers::Rows;
use super::line::{Line, sorted};
use super::orders::Order;
use super::settings::Settings;

fn row(id: &str) -> Publication {
    Publication::tombstone().message_id(id).event_type("Row")
}

/// `None` directly, and `None` again from the inbox.
pub async fn a_tombstone_reaches_a_handler_that_takes_it<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_raw(row("a"));
    line.publish_raw(row("a"));
    assert_eq!(sorted(line.run(2).await), ["duplicate", "processed"]);
    assert_eq!(line.effects("gone").await, 1);

    line.publish_raw(row("b").header("fails", "once"));
    assert_eq!(line.run(4).await[2..], ["scheduled 1", "processed"]);
    assert_eq!((line.desk.runs("gone"), line.effects("gone").await), (3, 2));
}

/// The text names the remedy, and the row stays a tombstone.
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

/// A handler whose key is the record's partition key, and which records what was deleted.
struct Deletions<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Deletions<W> {
    const NAME: &'static str = "deletions";
    const TOMBSTONES: bool = true;
    const NEEDS_PARTITION_KEY: bool = true;

    type Message = Option<Order>;
    type Input = Option<Order>;
    type Params = (State<Desk>, PartitionKey, Subject, Delivery);
    type Connection = W::Connection;

    fn key(_: &Option<Order>, delivery: &Delivery) -> Result<Key, KeyError> {
        Key::of(delivery.partition_key().unwrap_or_default())
    }

    async fn handle(
        order: Option<Order>,
        (State(desk), PartitionKey(key), Subject(subject), delivery): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let key = key.map(|key| String::from_utf8_lossy(&key).into_owned()).unwrap_or_default();
        let what = if order.is_some() { "written" } else { "deleted" };
        let name = format!("{what} {key} {}", subject.as_deref().unwrap_or("without a subject"));
        desk.write::<W>(&[&name], tx).await?;
        if delivery.attempt() == 1 && key == "fails" { Err("once".into()) } else { Ok(()) }
    }
}

/// Directly and from the inbox.
pub async fn a_tombstone_tells_what_was_deleted<W: World>(world: W) {
    let line = Line::new(world).await;
    let deleted = |key: &'static str| Publication::tombstone().partition_key(key);
    for message in [deleted("k1"), deleted("k1"), deleted("k2"), deleted("fails"), deleted("").subject("s")] {
        line.publish_raw(message);
    }
    line.publish_raw(Publication::from(Order::ok("k3")).partition_key("k3").subject("orders.k3"));
    let worker = line.run_until_stopped(line.worker().handler::<Deletions<W>>(), Settings::default());
    let outcomes = sorted(line.outcomes(7).await);
    worker.stop_once_idle(&line.queue).await;
    let processed = "processed";
    assert_eq!(outcomes, ["dead: no key", "duplicate", processed, processed, processed, processed, "scheduled 1"]);
    for name in ["deleted k1", "deleted k2", "deleted fails"] {
        assert_eq!(line.effects(&format!("{name} without a subject")).await, 1, "{name}");
    }
    assert_eq!(line.effects("written k3 orders.k3").await, 1);
}

/// Its deliveries have no partition key, no event type and no subject.
struct Keyless;

impl Tap for Keyless {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        (delivery, ())
    }

    fn has_partition_keys<S: Source>(&self, _: &S) -> bool {
        false
    }

    fn has_event_types<S: Source>(&self, _: &S) -> bool {
        false
    }

    fn has_subjects<S: Source>(&self, _: &S) -> bool {
        false
    }
}

/// All of its messages would be dead letters.
pub async fn a_key_by_partition_key_refuses_a_broker_without_partition_keys<W: World>(world: W) {
    let line = Line::new(world).await;
    let source = Tapped::new(line.queue.clone(), Keyless);
    let worker = Worker::new("billing", line.store.clone(), source).state(line.desk.clone());
    let refused = worker.handler::<Deletions<W>>().run_until(std::future::ready(())).await.unwrap_err().to_string();
    for part in ["\"deletions\"", "partition key", "orders (in_process)", "a field of the message"] {
        assert!(refused.contains(part), "{part:?} is not in {refused}");
    }
}

/// No pattern and no event type would match anything.
pub async fn a_worker_refuses_a_broker_without_that_by_which_it_routes<W: World>(world: W) {
    let line = Line::new(world).await;
    for (by_subject, has_no) in [(true, "subjects"), (false, "event types")] {
        let source = Tapped::new(line.queue.clone(), Keyless);
        let worker = Worker::new("billing", line.store.clone(), source).state(line.desk.clone()).handler::<Rows<W>>();
        let worker = if by_subject { worker.route_by_subject() } else { worker };
        let refused = worker.run_until(std::future::ready(())).await.unwrap_err().to_string();
        for part in [&format!("orders (in_process) has no {has_no}"), ".event_type("] {
            assert!(refused.contains(part), "{part:?} is not in {refused}");
        }
    }
}
