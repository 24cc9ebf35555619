//! Natural handlers that do nothing if they find their own effect, and otherwise stage a message: whatever is committed of a
//! message without the rest of it is lost, since a second run finds the effect.

use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use idem_core::store::Consumers;
use idem_core::{BoxError, Handler, Key, Outbox, Reason, ReplayWindow, State};

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::desk::Desk;
use super::line::Line;
use super::orders::{Act, Order, end};
use super::running::Running;
use super::settings::Settings;
use super::staging::Staging;

pub(super) const NATURAL: u8 = 0;
/// It is not natural.
const CLAIMING: u8 = 1;

const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// A handler that acts once for each order: it writes an effect unless it is there, stages a message, and then does what the
/// order says.
pub(super) struct Once<W, const KIND: u8>(PhantomData<fn() -> W>);

impl<W: World, const KIND: u8> Handler for Once<W, KIND> {
    const NAME: &'static str = "once";
    const NATURAL: bool = KIND != CLAIMING;

    type Params = (State<Desk>, Outbox);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(order: Order, (State(desk), outbox): Self::Params, tx: &mut W::Connection) -> Result<(), BoxError> {
        let run = desk.run(&order.id);
        if !W::changes(tx, &desk.insert_if_new(&order.id)).await? {
            return Ok(());
        }
        outbox.publish("orders.changed", &order.id)?;
        match order.does(run) {
            Act::Ok => Ok(()),
            ends => end::<W>(ends, &desk, &order.id, tx).await,
        }
    }
}

fn worker<W: World, const KIND: u8>(line: &Line<W>, settings: Settings) -> Running {
    line.run_until_stopped(line.worker().handler::<Once<W, KIND>>(), settings)
}

/// Runs the orders until they are settled, none is scheduled, and there are so many dead letters.
async fn run<W: World, const KIND: u8>(
    line: &Line<W>,
    settings: Settings,
    orders: impl IntoIterator<Item = Order>,
    dead: usize,
) {
    orders.into_iter().for_each(|order| line.publish_raw(Publication::from(order)));
    let worker = worker::<W, KIND>(line, settings);
    soon(line.queue.idle()).await;
    until(async || line.dead().await.len() >= dead && line.scheduled().await.is_empty()).await;
    worker.stop().await;
}

/// The others have run before it and after it, and each has its effect and its message. Its own message is a dead letter,
/// although a second run of it would find its effect and do nothing.
pub async fn a_commit_beside_natural_messages_loses_nothing_that_they_have_staged<W: World>(world: W) {
    let staging = Staging::new(world).await;
    let line = &staging.0;
    for (dead, act) in (1..).zip([Act::Commit, Act::CommitBegin, Act::CommitFail]) {
        let ok = |n: usize| Order::ok(&format!("{act:?} {n}"));
        let culprit = Order::new(&format!("{act:?}"), &[act]);
        let orders = (0..4).map(ok).chain([culprit]).chain((4..7).map(ok));
        let settings = Settings { concurrency: 1, linger: Duration::from_millis(300), ..Settings::default() };
        run::<W, NATURAL>(line, settings, orders, dead).await;
        let rows = line.dead().await;
        assert_eq!(rows.len(), dead, "{act:?}");
        assert_eq!(
            (rows[0].reason, rows[0].identity.key.clone()),
            (Some(Reason::Committed), Key::of(&format!("{act:?}")).unwrap())
        );
        let staged = staging.staged().await;
        for n in 0..7 {
            let id = format!("{act:?} {n}");
            assert_eq!(line.effects(&id).await, 1, "{id}");
            assert_eq!(staged.iter().filter(|staged| **staged == id).count(), 1, "{id} in {staged:?}");
        }
    }
}

/// Nothing tells that it ran, also if claims that the handler had before were pruned. The guide says so.
pub async fn a_copy_of_a_message_that_ran_without_a_claim_is_new_once_its_handler_has_claims<W: World>(world: W) {
    let line = Line::new(world).await;
    run::<W, CLAIMING>(&line, Settings::default(), [Order::ok("before")], 0).await;
    run::<W, NATURAL>(&line, Settings::default(), [Order::ok("a"), Order::ok("b")], 0).await;
    run::<W, CLAIMING>(&line, Settings::default(), [Order::ok("a")], 0).await;
    let again = if line.world.inbox() { 1 } else { 2 };
    assert_eq!(line.desk.runs("a"), again, "messages that are stored first have claims");
    let (claims, earlier) = (line.world.own("processed_messages"), W::earlier("processed_at", MONTH));
    line.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert!(line.store.prune().await.unwrap() > 0);
    run::<W, CLAIMING>(&line, Settings::default(), [Order::ok("b")], 0).await;
    assert_eq!(line.desk.runs("b"), 2);
    run::<W, CLAIMING>(&line, Settings::default(), [Order::ok("b")], 0).await;
    assert_eq!(line.desk.runs("b"), 2, "now it has a claim");
}

/// The record of its history is a date, and none of its claims was pruned: not even a message of 1970 is too old.
pub async fn no_message_is_too_old_for_a_handler_that_has_only_run_without_claims<W: World>(world: W) {
    let line = Line::new(world).await;
    run::<W, NATURAL>(&line, Settings::default(), [Order::ok("a")], 0).await;
    line.publish_raw(Publication::from(Order::ok("b")).published_at(SystemTime::UNIX_EPOCH));
    run::<W, CLAIMING>(&line, Settings::default(), [], 0).await;
    assert_eq!((line.dead().await.len(), line.desk.runs("b")), (0, 1));
}

/// For a copy that old it would stage messages again that their consumers do not know any more.
pub async fn a_natural_handler_that_stages_needs_the_retention_as_others_do<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.replay_window(ReplayWindow::Within(Duration::from_secs(8 * 24 * 3600)));
    let refused = worker::<W, NATURAL>(&line, Settings::default()).refused().await;
    for said in ["8 days", "7 days", ".retention(", "stages"] {
        assert!(refused.contains(said), "{refused}");
    }
}
