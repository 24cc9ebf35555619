//! Several handlers on one queue.

use std::marker::PhantomData;

use idem_core::store::Consumers;
use idem_core::{BoxError, Delivery, Handler, Reason, State};

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::Publication;

use super::desk::Desk;
use super::line::{Line, sorted};
use super::orders::{Order, Orders};
use super::settings::Settings;

fn both() -> Settings {
    Settings { both: true, ..Settings::default() }
}

/// One key under two handlers means two messages.
pub async fn the_type_of_event_chooses_the_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    for event in ["Order", "Refund", "Order"] {
        line.publish_raw(Publication::from(Order::ok("a")).event_type(event));
    }
    assert_eq!(sorted(line.run_with(both(), 3).await), ["duplicate", "processed", "processed"]);
    assert_eq!((line.effects("a").await, line.effects("refund a").await), (1, 1));
}

/// The type may be in a header, which may come twice if it says the same.
pub async fn a_header_chooses_the_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_raw(Publication::from(Order::ok("a")).header("ce-type", "Refund").event_type("Order"));
    line.publish_raw(Publication::from(Order::ok("b")).event_type("Order"));
    for (id, other) in [("c", "Refund"), ("d", "Order")] {
        line.publish_raw(Publication::from(Order::ok(id)).header("ce-type", "Refund").header("ce-type", other));
    }
    let settings = Settings { event_type: Some("ce-type"), ..both() };
    assert_eq!(
        sorted(line.run_with(settings, 4).await),
        ["dead: undecodable", "dead: unknown type", "processed", "processed"]
    );
    assert_eq!((line.effects("refund a").await, line.effects("a").await), (1, 0));
    let dead = line.dead().await;
    assert!(dead.iter().any(|dead| dead.error.contains("`ce-type`") && dead.error.contains("different")), "{dead:?}");
}

/// It is never skipped silently.
pub async fn an_unknown_type_is_dead_and_kept_whole<W: World>(world: W) {
    let line = Line::new(world).await;
    let order = Publication::from(Order::ok("a"));
    line.publish_raw(order.clone().event_type("Invoice"));
    line.publish_raw(order.clone());
    let outcomes = line.run(2).await;
    assert_eq!(outcomes, ["dead: unknown type", "dead: unknown type"]);
    assert_eq!(line.reports(), ["no handler no key: dead: unknown type"; 2]);
    let dead = line.dead().await;
    assert_eq!(dead.len(), 2, "an event without a type is another message");
    for dead in dead {
        assert_eq!((dead.reason, dead.deliveries, dead.handler.as_str()), (Some(Reason::UnknownType), 1, ""));
        assert_eq!(dead.delivery.payload(), order.payload());
    }
    assert_eq!(line.desk.runs("a"), 0);
}

/// They would share their claims. Also if one of them only had the name formerly, and nothing is renamed then.
pub async fn two_handlers_of_one_name_refuse_the_start<W: World>(world: W) {
    let line = Line::new(world).await;
    let workers = [
        line.worker().handler::<Orders<W>>().handler::<Orders<W>>(),
        line.worker().handler::<Orders<W>>().handler::<Orders<W, true, true>>(),
        line.worker().handler::<Orders<W, true, true>>().handler::<Orders<W>>(),
    ];
    for worker in workers {
        let refused = worker.run_until(std::future::ready(())).await.unwrap_err().to_string();
        assert!(refused.contains("two handlers have the name \"orders\", or had it formerly"), "{refused}");
    }
    let known = line.store.handlers(Some("billing")).await.unwrap();
    assert!(known.iter().all(|known| known.formerly.is_empty()), "{known:?}");
}

/// The empty name is that of no handler, to which the messages belong that none takes.
pub async fn a_former_name_that_no_handler_can_have_refuses_the_start<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_raw(Publication::from(Order::ok("a")).event_type("Invoice"));
    assert_eq!(line.run(1).await, ["dead: unknown type"]);
    let worker = line.worker().handler::<Routed<W, 6>>();
    let refused = worker.run_until(std::future::ready(())).await.unwrap_err().to_string();
    assert!(refused.contains("\"renamed\"") && refused.contains("former name"), "{refused}");
    assert_eq!(line.one_dead().await.handler, "", "nothing is renamed");
}

/// The patterns of the handlers below.
const PATTERNS: [Option<&str>; 7] = [
    Some("orders.*.paid"),
    Some("orders.*.sent"),
    Some("refunds.>"),
    None,
    Some("orders.42.*"),
    Some("orders.#"),
    None,
];

/// Takes the subjects that match its pattern, and writes its number with the id.
pub(super) struct Routed<W, const N: usize>(PhantomData<fn() -> W>);

impl<W: World, const N: usize> Handler for Routed<W, N> {
    const NAME: &'static str = ["paid", "sent", "refunds", "others", "one", "odd", "renamed"][N];
    const FORMERLY: &'static [&'static str] = if N == 6 { &[""] } else { &[] };
    const EVENT: Option<&'static str> = PATTERNS[N];

    type Params = (State<Desk>, Delivery);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(
        order: Order,
        (State(desk), delivery): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        desk.write::<W>(&[&format!("{} {}", Self::NAME, order.id)], tx).await?;
        if delivery.attempt() == 1 && order.id == "again" { Err("once".into()) } else { Ok(()) }
    }
}

/// The same from the inbox, where a message finds its handler by number, and when a dead letter is replayed.
pub async fn a_subject_chooses_the_handler_by_its_pattern<W: World>(world: W) {
    let line = Line::new(world).await;
    let order = |id: &str| Publication::from(Order::ok(id));
    for (id, subject) in [
        ("a", "orders.1.paid"),
        ("b", "orders.1.sent"),
        ("c", "refunds.1.2.3"),
        ("again", "orders.7.sent"),
        ("d", "orders.1.2.paid"),
        ("e", "refunds"),
    ] {
        // The event type is ignored here.
        line.publish_raw(order(id).subject(subject).event_type("orders.9.paid"));
    }
    line.publish_raw(order("f"));
    let worker = || line.worker();
    let three = worker().handler::<Routed<W, 0>>().handler::<Routed<W, 1>>().handler::<Routed<W, 2>>();
    let running = line.run_until_stopped(three.route_by_subject(), Settings::default());
    let outcomes = sorted(line.outcomes(8).await);
    running.stop_once_idle(&line.queue).await;
    let (unknown, processed) = ("dead: unknown type", "processed");
    assert_eq!(outcomes, [unknown, unknown, unknown, processed, processed, processed, processed, "scheduled 1"]);
    for name in ["paid a", "sent b", "refunds c", "sent again"] {
        assert_eq!(line.effects(name).await, 1, "{name}");
    }
    let dead = line.dead().await;
    let mut errors: Vec<_> = dead.iter().map(|row| row.error.rsplit(" with ").next().unwrap()).collect();
    errors.sort_unstable();
    assert_eq!(errors, ["no subject", "the subject \"orders.1.2.paid\"", "the subject \"refunds\""]);

    for row in dead {
        line.operator().replay(row.id).await.unwrap();
    }
    let rest = worker().handler::<Routed<W, 3>>().handler::<Routed<W, 0>>().handler::<Routed<W, 1>>();
    let rest = rest.handler::<Routed<W, 2>>().route_by_subject();
    let running = line.run_until_stopped(rest, Settings::default());
    until(async || {
        line.effects("others d").await + line.effects("others e").await + line.effects("others f").await >= 3
    })
    .await;
    running.stop().await;
}

/// Which of the two would run is arbitrary, and a pattern of another broker matches nothing.
pub async fn patterns_that_overlap_or_make_no_sense_refuse_the_start<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = || line.worker();
    let now = || std::future::ready(());
    let overlapping = worker().handler::<Routed<W, 0>>().handler::<Routed<W, 1>>().handler::<Routed<W, 4>>();
    let refused = overlapping.route_by_subject().run_until(now()).await.unwrap_err().to_string();
    for part in ["\"paid\"", "\"one\"", "orders.*.paid", "orders.42.*", "do not overlap"] {
        assert!(refused.contains(part), "{part:?} is not in {refused}");
    }
    let odd = worker().handler::<Routed<W, 5>>().route_by_subject().run_until(now()).await.unwrap_err().to_string();
    assert!(odd.contains("\"odd\"") && odd.contains("orders.#") && odd.contains("write `>`"), "{odd}");
    // Routed by event type, both are valid.
    let fine = worker().handler::<Routed<W, 0>>().handler::<Routed<W, 4>>().handler::<Routed<W, 5>>();
    fine.run_until(now()).await.unwrap();
}
