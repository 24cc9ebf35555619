//! The operator's question `why`, asked before each delivery: what the delivery becomes is the answer.

use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use idem_core::operator::{Asked, Compared, Forgotten, Operator, Verdict, Why};
use idem_core::store::Consumers;
use idem_core::{BoxError, Handler, Key, State, permanent};
use serde_json::json;

use idem_conformance::store::{Setup, World};
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::desk::Desk;
use super::handing::Handing;
use super::line::Line;
use super::orders::{Act, Order, Orders};
use super::settings::Settings;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

/// The operator of the line's consumer.
fn operator<W: World>(line: &Line<W>) -> Operator<W::Store> {
    Operator::new(&line.store).consumer("billing")
}

async fn ask<W: World>(line: &Line<W>, handler: &str, key: &str, message: &Publication) -> Why {
    let mut asked = Asked::new(handler, key);
    asked.payload = Some(message.payload().to_vec().into());
    operator(line).why(&asked).await.unwrap()
}

/// The outcome of a delivery of which this was said.
fn outcome(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::WouldRun => "processed",
        Verdict::Duplicate { .. } | Verdict::Waiting { .. } => "duplicate",
        Verdict::Conflict { .. } => "dead: conflict",
        Verdict::TooOld { .. } => "dead: too old",
    }
}

/// As a worker that has started once.
async fn register<W: World>(line: &Line<W>, handler: &str) {
    line.store.register("billing", &[handler]).await.unwrap();
}

/// Asks about an order, delivers it, and compares what becomes of it with the answer, which is returned.
async fn foretold<W: World>(line: &Line<W>, order: Order) -> Why {
    let message = Publication::from(order.clone());
    let why = ask(line, "orders", &order.id, &message).await;
    line.publish(message);
    line.runs_to(Settings::late(), &[outcome(&why.verdict)]).await;
    why
}

/// New, processed, a conflict, scheduled, dead, discarded and forgotten.
pub async fn a_delivery_becomes_what_was_foretold<W: World>(world: W) {
    let line = Line::new(world).await;
    register(&line, "orders").await;
    let new = foretold(&line, Order::ok("a")).await;
    assert_eq!((new.verdict, new.compared), (Verdict::WouldRun, Compared::NoClaim));
    let copy = foretold(&line, Order::ok("a")).await;
    assert!(
        matches!(copy.verdict, Verdict::Duplicate { discarded: false, .. }) && copy.compared == Compared::Equal,
        "{copy:?}"
    );
    let other = foretold(&line, Order::new("a", &[Act::Slow])).await;
    let Verdict::Conflict { why } = other.verdict.clone() else { panic!("{other:?}") };
    let conflict = line.one_dead().await;
    assert_eq!((conflict.error, other.compared), (why, Compared::Different), "in the same words");

    let fails = || Order::new("b", &[Act::Fail, Act::Ok]);
    line.publish(fails());
    line.runs_to(Settings::late(), &["scheduled 1"]).await;
    let waits = foretold(&line, fails()).await;
    let row = line.scheduled().await[0].id;
    assert_eq!(waits.verdict, Verdict::Waiting { row: Some(row), dead: false });
    let conflict = foretold(&line, Order::ok("b")).await;
    assert!(matches!(conflict.verdict, Verdict::Conflict { .. }) && conflict.rows[0].id == row, "{conflict:?}");

    let dies = || Order::new("c", &[Act::Permanent]);
    line.publish(dies());
    line.runs_to(Settings::late(), &["dead: permanent"]).await;
    let dead = foretold(&line, dies()).await;
    let row = line.dead().await[0].id;
    assert_eq!(dead.verdict, Verdict::Waiting { row: Some(row), dead: true });
    assert!(operator(&line).by("anna").discard(row).await.unwrap());
    let discarded = foretold(&line, dies()).await;
    assert!(matches!(discarded.verdict, Verdict::Duplicate { discarded: true, .. }), "{discarded:?}");
    assert_eq!(
        (discarded.operations[0].action.as_str(), discarded.operations[0].actor.as_str()),
        ("discarded", "anna")
    );

    foretold(&line, Order::ok("d")).await;
    let (anna, key) = (operator(&line), Key::of("d").unwrap());
    let forgotten = anna.forget(&anna.handler("orders").await.unwrap(), &key).await.unwrap();
    assert!(matches!(forgotten, Forgotten::Done { .. }), "{forgotten:?}");
    assert_eq!(foretold(&line, Order::ok("d")).await.verdict, Verdict::WouldRun);
    assert_eq!(line.effects("d").await, 2, "as the operator was told");
}

/// Its claim may be among those that were pruned. The margin is the worker's.
pub async fn a_delivery_that_is_too_old_is_foretold<W: World>(world: W) {
    let line = Line::with(world, Setup { retention: Some(HOUR), ..Setup::default() }).await;
    line.publish(Order::ok("seen"));
    line.run(1).await;
    prune(&line, 3 * HOUR).await;
    let table = [
        ("seen", 3 * HOUR + MINUTE, true),
        ("within the margin", 3 * HOUR - 3 * MINUTE, true),
        ("beyond the margin", 3 * HOUR - 8 * MINUTE, false),
        ("fresh", Duration::ZERO, false),
    ];
    for (id, age, is_old) in table {
        let published = SystemTime::now() - age;
        let message = Publication::from(Order::ok(id)).published_at(published);
        let mut asked = Asked::new("orders", id);
        (asked.payload, asked.published) = (Some(message.payload().to_vec().into()), Some(published));
        let why = operator(&line).why(&asked).await.unwrap();
        assert_eq!(matches!(why.verdict, Verdict::TooOld { .. }), is_old, "{id}: {why:?}");
        line.publish(message);
        line.runs_to(Settings::default(), &[outcome(&why.verdict)]).await;
    }
    let dated = operator(&line).why(&Asked::new("orders", "another")).await.unwrap();
    assert!(dated.verdict == Verdict::WouldRun && dated.hints.iter().any(|hint| hint.contains("too old")), "{dated:?}");
}

/// Moves all claims back by `age`, then prunes them.
async fn prune<W: World>(line: &Line<W>, age: Duration) {
    let (claims, earlier) = (line.world.own("processed_messages"), W::earlier("processed_at", age));
    line.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert!(line.store.prune().await.unwrap() > 0);
}

/// Without a claim a copy runs again, which the answer says. A natural handler takes a message of any age, and the tables do
/// not know which handlers are natural, so the answer names that exception.
pub async fn a_natural_delivery_is_foretold<W: World>(world: W) {
    let line = Line::with(world, Setup { retention: Some(HOUR), ..Setup::default() }).await;
    register(&line, "natural").await;
    for _ in 0..2 {
        let message = Publication::from(Order::ok("a"));
        let why = ask(&line, "natural", "a", &message).await;
        line.publish_natural(message);
        line.runs_to(Settings::default(), &[outcome(&why.verdict)]).await;
    }
    let runs = if line.world.inbox() { 1 } else { 2 };
    assert_eq!(line.desk.runs("a"), runs);
    line.publish_natural(Order::new("fails", &[Act::Fail, Act::Ok]).by_attempt());
    line.runs_to(Settings::default(), &["scheduled 1", "processed"]).await;
    let copy = Publication::from(Order::new("fails", &[Act::Fail, Act::Ok]).by_attempt());
    let known = ask(&line, "natural", "fails", &copy).await;
    assert!(matches!(known.verdict, Verdict::Duplicate { .. }), "it has a claim since it failed: {known:?}");
    prune(&line, 3 * HOUR).await;
    let published = SystemTime::now() - 4 * HOUR;
    let mut asked = Asked::new("natural", "old");
    asked.published = Some(published);
    let old = operator(&line).why(&asked).await.unwrap();
    assert!(old.verdict == Verdict::WouldRun || old.hints.iter().any(|hint| hint.contains("natural")), "{old:?}");
    line.publish_natural(Publication::from(Order::ok("old")).published_at(published));
    line.runs_to(Settings::default(), &["processed"]).await;
}

/// A local message is the same message as one from a broker.
pub async fn a_copy_of_a_local_message_is_foretold<W: World>(world: W) {
    let handing = Handing::new(world).await;
    let line = &handing.0;
    register(line, "receives").await;
    let receipt = |note: &str| Publication::json(&json!({"id": "a", "note": note})).unwrap().event_type("Receipt");
    assert_eq!(ask(line, "receives", "a", &receipt("")).await.verdict, Verdict::WouldRun);
    handing.publish("Handing", Order::ok("a"));
    handing.run(2).await;
    for (note, compared) in [("", Compared::Equal), ("first", Compared::Different)] {
        let why = ask(line, "receives", "a", &receipt(note)).await;
        assert_eq!(why.compared, compared);
        let known = line.outcomes(0).await.len();
        line.publish_raw(receipt(note));
        let worker = handing.start(Settings::default());
        assert_eq!(line.outcomes(known + 1).await[known], outcome(&why.verdict), "{why:?}");
        worker.stop_once_idle(&line.queue).await;
    }
    // The same when it is handed over: it is a conflict of the same row.
    handing.publish("Handing", Order::ok("a twice"));
    handing.run(5).await;
    assert_eq!(line.effects("receipt a").await, 1);
}

/// A second handler of orders.
struct Second<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Second<W> {
    const NAME: &'static str = "second";
    const EVENT: Option<&'static str> = Some("Order");

    type Params = State<Desk>;

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, State(desk): State<Desk>, tx: &mut W::Connection) -> Result<(), BoxError> {
        desk.write::<W>(&[&format!("second {}", order.id)], tx).await?;
        if order.id == "b" { Err(permanent("not b")) } else { Ok(()) }
    }
}

/// Each handler has an answer of its own.
pub async fn a_delivery_for_several_handlers_is_foretold_for_each<W: World>(world: W) {
    let line = Line::new(world).await;
    let deliver = async |id: &str| {
        let worker = line.worker().handler::<Orders<W>>().handler::<Second<W>>().fan_out();
        let worker = line.run_until_stopped(worker, Settings::late());
        line.publish(Order::ok(id));
        soon(line.queue.idle()).await;
        until(async || line.scheduled().await.is_empty()).await;
        worker.stop().await;
    };
    for id in ["a", "b"] {
        deliver(id).await;
    }
    let dead = line.one_dead().await.id;
    let message = |id: &str| Publication::from(Order::ok(id));
    for (id, handler, is_dead) in
        [("a", "orders", false), ("a", "second", false), ("b", "orders", false), ("b", "second", true)]
    {
        let why = ask(&line, handler, id, &message(id)).await;
        let waits = Verdict::Waiting { row: Some(dead), dead: true };
        assert!(
            if is_dead { why.verdict == waits } else { matches!(why.verdict, Verdict::Duplicate { .. }) },
            "{why:?}"
        );
        assert_eq!(outcome(&why.verdict), "duplicate");
    }
    for id in ["a", "b"] {
        deliver(id).await;
    }
    let reports = line.reports();
    let duplicates: Vec<_> = reports.iter().filter(|report| report.ends_with(": duplicate")).collect();
    assert_eq!(
        duplicates,
        ["orders a: duplicate", "orders b: duplicate", "second a: duplicate", "second b: duplicate"]
    );
}

/// A handler is asked for under each name that it has had: a log of yesterday has the old one.
pub async fn a_delivery_is_foretold_under_a_former_name<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    line.run(1).await;
    let renamed = || line.run_until_stopped(line.worker().handler::<Orders<W, true, true>>(), Settings::default());
    let message = || Publication::from(Order::ok("a")).event_type("Refund");
    let worker = renamed();
    line.publish_raw(message());
    assert_eq!(line.outcomes(2).await[1], "duplicate");
    worker.stop_once_idle(&line.queue).await;
    for name in ["orders", "refunds", "billing/orders", "billing/refunds"] {
        let why = ask(&line, name, "a", &message()).await;
        assert_eq!((why.handler.as_str(), outcome(&why.verdict)), ("refunds", "duplicate"), "{name}: {why:?}");
    }
}
