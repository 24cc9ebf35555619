//! Natural handlers of which several take one event, and of which one takes it alone.

use std::marker::PhantomData;

use idem_core::{BoxError, Handler, State};

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::desk::Desk;
use super::handlers::NaturalOrders;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// Takes the events of [`NaturalOrders`] as well, or, if it is `ALONE`, those that no other handler takes.
struct Audits<W, const ALONE: bool>(PhantomData<fn() -> W>);

impl<W: World, const ALONE: bool> Handler for Audits<W, ALONE> {
    const NAME: &'static str = if ALONE { "audits_alone" } else { "audits" };
    const EVENT: Option<&'static str> = Some(if ALONE { "Alone" } else { "Natural" });
    const NATURAL: bool = true;

    type Params = State<Desk>;

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, State(desk): State<Desk>, tx: &mut W::Connection) -> Result<(), BoxError> {
        let name = format!("{} {}", Self::NAME, order.id);
        desk.run(&name);
        desk.write::<W>(&[&name], tx).await
    }
}

/// How many claims a handler has.
async fn claims<W: World>(line: &Line<W>, handler: &str) -> i64 {
    let (claims, handlers) = (line.world.own("processed_messages"), line.world.own("handlers"));
    let of = format!("(SELECT id FROM {handlers} WHERE name = '{handler}')");
    line.world.number(&format!("SELECT count(*) FROM {claims} WHERE handler_id = {of}")).await
}

/// A message that several take is stored for each of them, and so has claims, and a copy of it is a duplicate. One that a
/// single handler takes runs without a claim, and a copy runs again.
pub async fn a_natural_message_has_claims_where_several_handlers_take_it<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = line.worker().handler::<NaturalOrders<W>>();
    let worker = worker.handler::<Audits<W, false>>().handler::<Audits<W, true>>().fan_out();
    let worker = line.run_until_stopped(worker, Settings::default());
    for _ in 0..2 {
        line.publish_natural(Order::ok("a"));
        line.publish_raw(Publication::from(Order::ok("b")).event_type("Alone"));
        soon(line.queue.idle()).await;
        until(async || line.scheduled().await.is_empty()).await;
    }
    worker.stop().await;
    assert_eq!((line.desk.runs("a"), line.desk.runs("audits a")), (1, 1));
    assert_eq!((claims(&line, "natural").await, claims(&line, "audits").await), (1, 1));
    let (runs, has) = if line.world.inbox() { (1, 1) } else { (2, 0) };
    assert_eq!((line.desk.runs("audits_alone b"), claims(&line, "audits_alone").await), (runs, has));
}
