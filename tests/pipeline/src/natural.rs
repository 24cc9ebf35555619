//! Natural handlers: their deliveries run without a claim, unless the worker keeps an order or several handlers take one message.

use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use idem_core::store::Consumers;
use idem_core::{Batch, BoxError, DeliveryOrder, Handler, Outbox, Reason, ReplayWindow, State};
use tracing::instrument::WithSubscriber;

use idem_conformance::store::{Setup, World};
use idem_conformance::{captured, soon, until};
use idem_test::Publication;

use super::desk::Desk;
use super::handlers::NaturalOrders;
use super::key_order::{a_while, hurry, keyed, ordered, patient, rest_are_done};
use super::line::Line;
use super::once::{NATURAL, Once};
use super::orders::{Act, Order};
use super::settings::Settings;

/// How many claims a handler has.
async fn claims<W: World>(line: &Line<W>, handler: &str) -> i64 {
    let (claims, handlers) = (line.world.own("processed_messages"), line.world.own("handlers"));
    let of = format!("(SELECT id FROM {handlers} WHERE name = '{handler}')");
    line.world.number(&format!("SELECT count(*) FROM {claims} WHERE handler_id = {of}")).await
}

/// Nothing remembers that it was processed, unless it is stored first.
pub async fn a_copy_of_a_natural_message_runs_again<W: World>(world: W) {
    let line = Line::new(world).await;
    for run in 1..=2 {
        line.publish_natural(Order::ok("a"));
        line.run(run).await;
    }
    let (outcome, runs) = if line.world.inbox() { ("duplicate", 1) } else { ("processed", 2) };
    assert_eq!(line.run(2).await, ["processed", outcome]);
    assert_eq!((line.desk.runs("a"), line.effects("a").await), (runs, runs as i64));
}

/// It takes no space, beside messages that have claims.
pub async fn a_natural_message_leaves_no_claim<W: World>(world: W) {
    let line = Line::new(world).await;
    for n in 0..10 {
        line.publish_natural(Order::ok(&format!("natural {n}")));
        line.publish(Order::ok(&format!("claimed {n}")));
    }
    assert!(line.run(20).await.iter().all(|outcome| outcome == "processed"));
    let all = line.world.number(&format!("SELECT count(*) FROM {}", line.world.own("processed_messages"))).await;
    assert_eq!((claims(&line, "natural").await, all), if line.world.inbox() { (10, 20) } else { (0, 10) });
    for n in 0..10 {
        assert_eq!(line.effects(&format!("natural {n}")).await, 1);
    }
}

/// Its failures are counted, and it becomes a dead letter, as any other message.
pub async fn a_natural_message_that_fails_runs_from_the_inbox<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_natural(Order::new("a", &[Act::Fail, Act::Ok]).by_attempt());
    assert_eq!(line.run(2).await, ["scheduled 1", "processed"]);
    assert_eq!((line.effects("a").await, claims(&line, "natural").await), (1, 1));
    line.publish_natural(Order::new("b", &[Act::Fail]));
    assert_eq!(line.run(7).await.last().unwrap(), "dead: exhausted");
    let dead = line.one_dead().await;
    assert_eq!((dead.handler.as_str(), dead.attempts, line.effects("b").await), ("natural", 5, 0));
    line.operator().discard(dead.id).await.unwrap();
    assert!(line.dead().await.is_empty());
}

/// A copy runs, and if it fails as well, it is a duplicate of the row.
pub async fn a_copy_of_a_natural_message_that_is_dead_is_a_duplicate<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_natural(Order::new("a", &[Act::Permanent]));
    line.run(1).await;
    line.publish_natural(Order::new("a", &[Act::Permanent]));
    assert_eq!(line.run(2).await, ["dead: permanent", "duplicate"]);
    let dead = line.one_dead().await;
    assert_eq!(dead.attempts, 1);
    assert_eq!(line.desk.runs("a"), if line.world.inbox() { 1 } else { 2 });
}

/// Without a claim there is nothing to compare a fingerprint with.
pub async fn another_payload_under_a_natural_key_is_no_conflict<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_natural(Order::ok("a"));
    line.run(1).await;
    line.publish_natural(Order::new("a", &[Act::Slow]));
    let outcome = if line.world.inbox() { "dead: conflict" } else { "processed" };
    assert_eq!(line.run(2).await, ["processed", outcome]);
}

/// The ids of what a batch stages are random, so that a copy would publish others.
pub async fn a_natural_batch_handler_that_stages_refuses_the_start<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = line.worker().handler::<StagesNaturally<W>>();
    let refused = line.run_until_stopped(worker, Settings::default()).refused().await;
    assert!(refused.contains("\"stages_naturally\"") && refused.contains("remove `natural`"), "{refused}");
}

/// A natural batch handler that stages messages.
struct StagesNaturally<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for StagesNaturally<W> {
    const NAME: &'static str = "stages_naturally";
    const NATURAL: bool = true;

    type Params = Outbox;

    idem_conformance::keyed_by_id!(Order, W::Connection, Batch<Order>);

    async fn handle(_: Batch<Order>, _: Outbox, _: &mut W::Connection) -> Result<(), BoxError> {
        Ok(())
    }
}

/// However far the claims of its handler were pruned: directly, stored, and as a row.
pub async fn a_natural_message_is_never_too_old<W: World>(world: W) {
    const HOUR: Duration = Duration::from_secs(3600);
    let line = Line::with(world, Setup { retention: Some(HOUR), ..Setup::default() }).await;
    line.publish_natural(Order::new("seen", &[Act::Fail, Act::Ok]).by_attempt());
    line.run(2).await;
    let (claims, earlier) = (line.world.own("processed_messages"), W::earlier("processed_at", 3 * HOUR));
    line.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert_eq!(line.store.prune().await.unwrap(), 1);
    let old = |order: Order| Publication::from(order).published_at(SystemTime::now() - 4 * HOUR);
    line.publish_natural(old(Order::ok("seen")));
    line.runs_to(Settings::default(), &["processed"]).await;
    line.publish_raw_redelivered(old(Order::ok("redelivered")).event_type("Natural")).await;
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    line.publish_natural(old(Order::new("fails", &[Act::Fail, Act::Ok]).by_attempt()));
    line.runs_to(Settings::default(), &["scheduled 1", "processed"]).await;
}

/// A process may have died on it, and only the inbox counts that.
pub async fn a_redelivered_natural_message_is_stored_before_it_runs<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_raw_redelivered(Publication::from(Order::ok("a")).event_type("Natural")).await;
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!((line.effects("a").await, claims(&line, "natural").await), (1, 1));
    line.publish_raw_redelivered(Publication::from(Order::ok("a")).event_type("Natural")).await;
    line.runs_to(Settings::default(), &["duplicate"]).await;
    assert_eq!(line.desk.runs("a"), 1);
}

/// There is no claim that carries the transaction, and it is found out nevertheless.
pub async fn a_natural_handler_that_commits_is_dead_and_its_effect_stands<W: World>(world: W) {
    let line = Line::new(world).await;
    for (n, act) in [Act::Commit, Act::CommitBegin, Act::CommitFail].into_iter().enumerate() {
        let id = format!("{act:?}");
        line.publish_natural(Order::new(&id, &[act]));
        assert_eq!(line.run(n + 1).await[n], "dead: committed by its handler", "{act:?}");
        assert_eq!(line.effects(&id).await, i64::from(!W::FEATURES.refuses_commit), "{act:?}");
        assert_eq!(line.dead().await[0].reason, Some(Reason::Committed));
    }
    // Each dead letter has a claim, so that a redelivery meets it.
    assert_eq!(claims(&line, "natural").await, 3);
}

/// Beside messages with claims and without: each of the former has one effect, and the latter at least one.
pub async fn a_natural_handler_that_commits_harms_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker =
        line.start_with(Settings { concurrency: 1, linger: Duration::from_millis(300), ..Settings::default() });
    for (dead, act) in (1..).zip([Act::Commit, Act::CommitBegin, Act::CommitFail, Act::Rollback, Act::RollbackBegin]) {
        for n in 0..4 {
            line.publish(Order::ok(&format!("claimed {act:?} {n}")));
            line.publish_natural(Order::ok(&format!("natural {act:?} {n}")));
        }
        line.publish_natural(Order::new(&format!("{act:?}"), &[act]));
        line.publish_natural(Order::ok(&format!("last {act:?}")));
        soon(line.queue.idle()).await;
        until(async || line.dead().await.len() >= dead && line.scheduled().await.is_empty()).await;
    }
    worker.stop().await;
    for act in [Act::Commit, Act::CommitBegin, Act::CommitFail, Act::Rollback, Act::RollbackBegin] {
        for n in 0..4 {
            assert_eq!(line.effects(&format!("claimed {act:?} {n}")).await, 1, "{act:?}");
            assert!(line.effects(&format!("natural {act:?} {n}")).await >= 1, "{act:?}");
        }
        assert!(line.effects(&format!("last {act:?}")).await >= 1, "{act:?}");
    }
    assert_eq!(line.dead().await.len(), 5);
}

/// All claims of a batch are those of other transactions, so none of them guards this one.
pub async fn a_natural_handler_that_ends_its_transaction_beside_duplicates_is_found_out<W: World>(world: W) {
    let line = Line::new(world).await;
    let known = || (0..4).for_each(|n| line.publish(Order::ok(&format!("known {n}"))));
    known();
    line.run(4).await;
    for act in [Act::Commit, Act::Rollback, Act::RollbackBegin] {
        let dead = line.dead().await.len();
        let worker =
            line.start_with(Settings { concurrency: 1, linger: Duration::from_millis(300), ..Settings::default() });
        known();
        line.publish_natural(Order::new(&format!("{act:?}"), &[act]));
        until(async || line.dead().await.len() != dead).await;
        worker.stop_once_idle(&line.queue).await;
    }
    let reasons: Vec<_> = line.dead().await.iter().map(|row| row.reason).collect();
    assert_eq!(reasons, [Some(Reason::RolledBack), Some(Reason::RolledBack), Some(Reason::Committed)]);
    assert_eq!((line.effects("Rollback").await, line.effects("RollbackBegin").await), (0, 0));
}

/// No claim shows its COMMIT: it runs again from the inbox, where it has one.
pub async fn a_natural_message_that_is_cut_off_is_never_lost<W: World>(world: W) {
    let line = Line::new(world).await;
    let hasty = Settings { handler_timeout: Duration::from_secs(2), ..Settings::default() };
    let acts = [
        Some(Act::CommitHang),
        W::FEATURES.terminate_backend.map(|_| Act::CommitTerminateBackend),
        Some(Act::CommitWait),
    ];
    for (dead, act) in (1..).zip(acts.into_iter().flatten()) {
        let id = format!("{act:?}");
        line.publish_natural(Order::new(&id, &[act]));
        if act == Act::CommitWait {
            let worker = line.start_with(Settings { drain: Duration::from_millis(50), ..hasty.clone() });
            soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
            worker.stop().await;
            line.desk.go.send_replace(true);
        }
        let worker = line.start_with(hasty.clone());
        until(async || line.dead().await.len() >= dead).await;
        worker.stop_once_idle(&line.queue).await;
        assert_eq!(
            (line.dead().await[0].reason, &line.dead().await[0].identity.key.to_string()),
            (Some(Reason::Committed), &id)
        );
    }
}

/// As any other: a partition's next owner must not run a message beside its row, nor the next one before that row.
pub async fn a_natural_handler_in_an_order_waits_for_the_rows_of_its_messages<W: World>(world: W) {
    let line = Line::new(world).await;
    let a = Order::new("a", &[Act::Fail, Act::Ok]);
    line.publish_natural(a.clone());
    // Unordered, so that it is acked while its row waits.
    line.run_with(Settings { order: DeliveryOrder::None, ..patient() }, 1).await;
    line.publish_natural(keyed(1, a));
    line.publish_natural(keyed(1, Order::ok("b")));
    line.publish_natural(keyed(2, Order::ok("x")));
    let worker = line.start_with(patient());
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    a_while().await;
    assert_eq!(line.desk.log(), ["a", "x"]);
    hurry(&line).await;
    rest_are_done(&line).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log(), ["a", "x", "a", "b"]);
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 1));
}

/// However far its claims were pruned: it may run again.
pub async fn a_natural_message_in_an_order_is_never_too_old<W: World>(world: W) {
    const HOUR: Duration = Duration::from_secs(3600);
    let line = Line::with(world, Setup { retention: Some(HOUR), ..Setup::default() }).await;
    let old = || keyed(1, Order::ok("a")).published_at(SystemTime::now() - 4 * HOUR);
    line.publish_natural(old());
    line.run_with(ordered(), 1).await;
    let (claims, earlier) = (line.world.own("processed_messages"), W::earlier("processed_at", 3 * HOUR));
    line.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    assert_eq!(line.store.prune().await.unwrap(), 1);
    line.publish_natural(old());
    assert_eq!(line.run_with(ordered(), 2).await, ["processed"; 2]);
}

/// Each of its messages has a claim, and so a copy is a duplicate, which needs no second run.
pub async fn a_natural_message_in_an_order_has_a_claim<W: World>(world: W) {
    let line = Line::new(world).await;
    for _ in 0..2 {
        line.publish_natural(keyed(1, Order::ok("a")));
    }
    assert_eq!(line.run_with(ordered(), 2).await, ["processed", "duplicate"]);
    let claims = format!("SELECT count(*) FROM {}", line.world.own("processed_messages"));
    assert_eq!((line.desk.runs("a"), line.world.number(&claims).await), (1, 1));
}

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

/// It is never too old itself, but those that get what it stages do not know its ids for longer than they keep claims.
pub async fn a_natural_handler_that_stages_is_warned_of_what_it_stages_for_late_copies<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.replay_window(ReplayWindow::Unlimited);
    line.publish_raw(Publication::from(Order::ok("a")));
    let worker = line.worker();
    let ((text, subscriber), idle) = (captured(), line.queue.clone());
    let run = worker.handler::<Once<W, NATURAL>>().run_until(async move { idle.idle().await });
    soon(run.with_subscriber(subscriber)).await.unwrap();
    let text = text.to_string();
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("without a limit of time")).collect();
    let [warning] = &warnings[..] else { panic!("{text}") };
    assert!(warning.contains("stages its messages again") && warning.contains("retention=7 days"), "{warning}");
}
