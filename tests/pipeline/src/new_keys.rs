//! Conflicts of a handler that was keyed by the id of an entity, replayed once it is keyed by that of the event.

use std::marker::PhantomData;
use std::ops::ControlFlow;

use idem_core::operator::{Bulk, Done, Filter, Operator};
use idem_core::{BoxError, Delivery, Handler, Key, KeyError, Reason, State};
use serde::{Deserialize, Serialize};

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::desk::Desk;
use super::handing::Handing;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// An event about an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Shipped {
    event: String,
    order: String,
}

/// The handler of these events, by a version of the service; the later one is keyed by the event.
struct Ships<W, const LATER: bool>(PhantomData<fn() -> W>);

impl<W: World, const LATER: bool> Handler for Ships<W, LATER> {
    const NAME: &'static str = "ships";
    const EVENT: Option<&'static str> = Some("Shipped");

    type Message = Shipped;
    type Input = Shipped;
    type Params = State<Desk>;
    type Connection = W::Connection;

    fn key(shipped: &Shipped, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(if LATER { &shipped.event } else { &shipped.order })
    }

    async fn handle(shipped: Shipped, State(desk): State<Desk>, tx: &mut W::Connection) -> Result<(), BoxError> {
        desk.run(&shipped.event);
        desk.write::<W>(&[&shipped.event], tx).await
    }
}

fn publish<W: World>(line: &Line<W>, event: &str) {
    let shipped = Shipped { event: event.to_owned(), order: "order 7".to_owned() };
    line.publish_raw(Publication::json(&shipped).unwrap().event_type("Shipped"));
}

/// Runs a worker with this version of the handler until nothing is left to do.
async fn run<W: World, const LATER: bool>(line: &Line<W>) {
    let worker = line.run_until_stopped(line.worker().handler::<Ships<W, LATER>>(), Settings::default());
    soon(line.queue.idle()).await;
    until(async || line.scheduled().await.is_empty()).await;
    worker.stop().await;
}

/// Replays the conflicts of the consumer for new keys.
async fn replay<W: World>(line: &Line<W>) -> Done {
    let conflicts = Filter::new().reason(Reason::Conflict);
    let operator = Operator::new(&line.store).consumer("billing").by("anna");
    let done =
        operator.replay_all(&conflicts, Bulk { new_keys: true, ..Bulk::default() }, |_| ControlFlow::Continue(()));
    done.await.unwrap()
}

/// One event was processed under the key of its order, and two others of this order are conflicts.
async fn conflicts<W: World>(line: &Line<W>) {
    for event in ["e-1", "e-2", "e-3"] {
        publish(line, event);
        run::<W, false>(line).await;
    }
    assert_eq!((line.effects("e-1").await, line.dead().await.len()), (1, 2));
}

/// Each has its effect once, also where a copy of it has come under the new key before, or comes behind it.
pub async fn conflicts_run_once_under_the_new_keys_of_their_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    conflicts(&line).await;
    publish(&line, "e-2");
    run::<W, true>(&line).await;
    assert_eq!(line.effects("e-2").await, 1, "the copy");
    let done = replay(&line).await;
    assert_eq!((done.due, done.needs_key), (2, 0));
    run::<W, true>(&line).await;
    for event in ["e-2", "e-3"] {
        publish(&line, event);
    }
    run::<W, true>(&line).await;
    for event in ["e-1", "e-2", "e-3"] {
        assert_eq!((line.effects(event).await, line.desk.runs(event)), (1, 1), "{event}");
    }
    assert!(line.dead().await.is_empty());
    let claims = format!("SELECT count(*) FROM {}", line.world.own("processed_messages"));
    assert_eq!(line.world.number(&claims).await, 3, "of the order, and of two events");
}

/// The operator was early: they are conflicts again, whole, and the command can be repeated.
pub async fn conflicts_whose_handler_has_no_new_key_are_conflicts_again<W: World>(world: W) {
    let line = Line::new(world).await;
    conflicts(&line).await;
    for _ in 0..2 {
        assert_eq!(replay(&line).await.due, 2);
        run::<W, false>(&line).await;
        let dead = line.dead().await;
        let keys: Vec<_> = dead.iter().map(|row| (row.reason, row.identity.key.to_string())).collect();
        assert_eq!(keys, vec![(Some(Reason::Conflict), "order 7".to_owned()); 2]);
    }
    assert_eq!(replay(&line).await.due, 2);
    run::<W, true>(&line).await;
    for event in ["e-1", "e-2", "e-3"] {
        assert_eq!(line.effects(event).await, 1, "{event}");
    }
    assert!(line.dead().await.is_empty());
}

/// A local message has the key that it got when it was handed over, and no other way to its handler.
pub async fn a_conflict_of_a_local_message_keeps_its_key<W: World>(world: W) {
    let handing = Handing::new(world).await;
    handing.publish("Handing", Order::ok("a"));
    handing.run(2).await;
    handing.publish("Handing", Order::ok("a twice"));
    handing.run(3).await;
    let line = &handing.0;
    let done = replay(line).await;
    assert_eq!((done.due, done.needs_key), (0, 2));
    let dead = line.dead().await;
    let keys: Vec<_> = dead.iter().map(|row| (row.reason, row.identity.key.to_string())).collect();
    assert_eq!(keys, vec![(Some(Reason::Conflict), "a".to_owned()); 2]);
}
