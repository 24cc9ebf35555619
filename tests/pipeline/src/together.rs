//! Messages that run together in one transaction, and batch handlers, which take them all at once.

use std::time::Duration;

use idem_core::{DeliveryOrder, Reason};

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::harness::Crash;

use super::crashes::{order, trial};
use super::line::{Line, sorted};
use super::orders::{Act, Order};
use super::running::Running;
use super::settings::Settings;

/// One lane, so that messages published while it is busy are there when it asks again.
fn one_lane() -> Settings {
    Settings { concurrency: 1, ..Settings::default() }
}

/// Starts a worker that takes these messages together: they arrive while it runs an earlier one. One more follows them.
pub(super) async fn taken_together<W: World>(line: &Line<W>, orders: &[Order]) -> Running {
    if line.world.inbox() {
        return stored_together(line, orders).await;
    }
    let worker = blocked(line).await;
    orders.iter().for_each(|order| line.publish(order.clone()));
    let_go(line, orders.len()).await;
    worker
}

/// The same where messages are stored before they run: these are stored while two earlier ones occupy both slots. None
/// follows them.
async fn stored_together<W: World>(line: &Line<W>, orders: &[Order]) -> Running {
    let worker = line.start_with(one_lane());
    for (before, id) in ["before", "before too"].into_iter().enumerate() {
        line.publish(Order::new(id, &[Act::Wait]));
        soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == before + 1)).await.unwrap();
    }
    orders.iter().for_each(|order| line.publish(order.clone()));
    soon(line.queue.settled(orders.len() + 2)).await;
    line.desk.go.send_replace(true);
    worker
}

pub(super) async fn blocked<W: World>(line: &Line<W>) -> Running {
    line.publish(Order::new("before", &[Act::Wait]));
    let worker = line.start_with(one_lane());
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    worker
}

pub(super) async fn let_go<W: World>(line: &Line<W>, published: usize) {
    // It takes deliveries one by one, so it holds all those before the last one handed out.
    line.publish(Order::ok("after"));
    soon(line.queue.delivered(published + 2)).await;
    line.desk.go.send_replace(true);
}

/// Waits for this many outcomes besides those of the two other messages, and returns them all, sorted.
pub(super) async fn ends<W: World>(line: &Line<W>, worker: Running, outcomes: usize) -> Vec<String> {
    line.outcomes(outcomes + 2).await;
    worker.stop_once_idle(&line.queue).await;
    sorted(line.outcomes(outcomes + 2).await)
}

pub(super) fn numbers(to: usize) -> Vec<Order> {
    (0..to).map(|n| Order::ok(&n.to_string())).collect()
}

pub(super) async fn each_has_one_effect<W: World>(line: &Line<W>, orders: &[Order]) {
    for order in orders {
        assert_eq!(line.effects(&order.id).await, 1, "{}", order.id);
    }
}

/// Waiting messages run in one transaction. A failing one costs each earlier message one more run. It is then run
/// alone, and only that run counts as an attempt.
pub async fn a_failure_in_a_batch_costs_one_more_round<W: World>(world: W) {
    let line = Line::new(world).await;
    let mut orders = numbers(8);
    orders.insert(4, Order::new("fails", &[Act::Fail, Act::Ok]).by_attempt());
    let worker = taken_together(&line, &orders).await;
    let outcomes = ends(&line, worker, 10).await;
    assert_eq!((outcomes[0].as_str(), outcomes[11].as_str()), ("processed", "scheduled 1"), "{outcomes:?}");
    each_has_one_effect(&line, &orders).await;
    assert_eq!(line.desk.runs("fails"), 3);
    for n in 0..8 {
        assert_eq!(line.desk.runs(&n.to_string()), if n < 4 { 2 } else { 1 }, "{n}");
    }
}

/// If the failing message is unknown, the batch is halved until it is alone; no attempt of another message is recorded.
async fn one_swallows<W: World>(world: W, place: usize) {
    let Some(line) = Line::new_if(W::FEATURES.errors_abort, world).await else { return };
    let mut orders = numbers(9);
    orders.insert(place, Order::new("swallows", &[Act::Swallow, Act::Fail, Act::Permanent]).by_attempt());
    let worker = taken_together(&line, &orders).await;
    let outcomes = ends(&line, worker, 12).await;
    assert_eq!(
        (outcomes[0].as_str(), &outcomes[12..]),
        ("dead: permanent", &["scheduled 1", "scheduled 2"].map(String::from)[..])
    );
    assert!(outcomes[1..12].iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    assert_eq!(line.one_dead().await.attempts, 3);
    each_has_one_effect(&line, &numbers(9)).await;
}

/// The first statement of the message after it fails.
pub async fn no_attempt_is_recorded_for_an_error_that_was_swallowed_before<W: World>(world: W) {
    one_swallows(world, 4).await;
}

/// No message follows it, so only the commit fails.
pub async fn no_attempt_is_recorded_for_an_error_that_was_swallowed_at_the_end<W: World>(world: W) {
    one_swallows(world, 9).await;
}

/// A handler that runs ROLLBACK undoes the claims of all. Its message becomes dead; each of the others, before or after
/// it, has one effect and no recorded attempt.
async fn one_rolls_back<W: World>(world: W, act: Act, place: usize) {
    let line = Line::new(world).await;
    let mut orders = numbers(6);
    orders.insert(place, Order::new("culprit", &[act]));
    let worker = taken_together(&line, &orders).await;
    let outcomes = ends(&line, worker, 7).await;
    assert_eq!(outcomes[0], "dead: rolled back by its handler");
    assert!(outcomes[1..].iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    each_has_one_effect(&line, &numbers(6)).await;
    assert_eq!((line.effects("culprit").await, line.one_dead().await.attempts), (0, 1));
}

/// No write follows it, so that the next messages are the first to write.
pub async fn a_rollback_in_a_batch_harms_no_other_message<W: World>(world: W) {
    one_rolls_back(world, Act::Rollback, 0).await;
}

/// With a new transaction.
pub async fn a_rollback_and_begin_in_a_batch_harms_no_other_message<W: World>(world: W) {
    one_rolls_back(world, Act::RollbackBegin, 3).await;
}

/// Followed by a write.
pub async fn a_rollback_and_a_write_in_a_batch_harm_no_other_message<W: World>(world: W) {
    one_rolls_back(world, Act::RollbackWrite, 3).await;
}

/// Followed by an error.
pub async fn a_rollback_and_an_error_in_a_batch_harm_no_other_message<W: World>(world: W) {
    // Elsewhere the error may have rolled back by itself, and is an ordinary failure.
    if W::FEATURES.errors_abort {
        one_rolls_back(world, Act::RollbackWriteFail, 5).await;
    }
}

/// Where the sessions may write, a write behind a ROLLBACK remains, and each run of the handler repeats it. The batch
/// knows whose handler it was, so it runs once more, alone.
async fn one_writes_behind_its_rollback<W: World>(world: W, act: Act, place: usize) {
    let line = Line::new(world).await;
    let mut orders = numbers(6);
    orders.insert(place, Order::new("culprit", &[act]));
    let worker = taken_together(&line, &orders).await;
    let outcomes = ends(&line, worker, 7).await;
    assert_eq!(outcomes[0], "dead: rolled back by its handler");
    each_has_one_effect(&line, &numbers(6)).await;
    let (runs, effects) = (line.desk.runs("culprit"), line.effects("culprit").await);
    assert!(runs == 2 && effects <= 2, "{runs} runs, {effects} effects");
}

/// Another message follows it.
pub async fn a_write_behind_a_rollback_runs_at_most_twice<W: World>(world: W) {
    one_writes_behind_its_rollback(world, Act::RollbackWrite, 3).await;
}

/// If no message follows it in the batch, only the commit finds that the transaction has ended.
pub async fn a_write_behind_a_rollback_at_the_end_runs_at_most_twice<W: World>(world: W) {
    one_writes_behind_its_rollback(world, Act::RollbackWrite, 6).await;
}

/// The handler fails by itself.
pub async fn a_write_and_an_error_behind_a_rollback_run_at_most_twice<W: World>(world: W) {
    one_writes_behind_its_rollback(world, Act::RollbackWriteFail, 3).await;
}

/// A copy shares one effect with its first, and another message under its key is a conflict beside it.
pub async fn copies_and_conflicts_in_a_batch_are_known<W: World>(world: W) {
    let line = Line::new(world).await;
    let other = Order::new("a", &[Act::Ok, Act::Ok]);
    let orders = [Order::ok("a"), other.clone(), Order::ok("b"), Order::ok("a"), other];
    let worker = taken_together(&line, &orders).await;
    let outcomes = ends(&line, worker, 5).await;
    assert_eq!(outcomes[..4], ["dead: conflict", "dead: conflict", "duplicate", "processed"]);
    let of_a = ["orders a: dead: conflict", "orders a: dead: conflict", "orders a: duplicate", "orders a: processed"];
    let others = ["orders after: processed", "orders b: processed", "orders before: processed"];
    assert_eq!(line.reports(), [&of_a[..], &others].concat());
    let dead = line.one_dead().await;
    assert_eq!((dead.reason, dead.deliveries), (Some(Reason::Conflict), 2));
    assert_eq!((line.desk.runs("a"), line.desk.runs("b")), (1, 1));
    each_has_one_effect(&line, &[Order::ok("a"), Order::ok("b")]).await;
}

/// Batches whose handlers write the same rows in different orders deadlock. No attempt is recorded, and all are
/// processed.
pub async fn batches_that_deadlock_get_through<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    let rows: Vec<String> = (0..4).map(|n| format!("hot {n}")).collect();
    for row in &rows {
        line.world.run(&format!("INSERT INTO {} (name) VALUES ('{row}')", line.world.name("effects"))).await;
    }
    let orders: Vec<Order> = (0..60).map(|n| Order::new(&n.to_string(), &[Act::Touch(n * 7 % 4)])).collect();
    orders.iter().for_each(|order| line.publish(order.clone()));
    let outcomes = line.run_with(Settings { concurrency: 4, ..Settings::default() }, 60).await;
    assert!(outcomes.iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    each_has_one_effect(&line, &orders).await;
}

/// A process ends while a batch runs, at any point: each message has one effect in the end.
pub async fn a_crash_of_a_batch_loses_and_doubles_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    let trial = trial(line.world.clone(), line.desk.clone()).await;
    // A batch of a natural handler begins without a claim.
    let points = Crash::ALL.iter().filter(|point| !W::NATURAL || **point != Crash::AfterClaim);
    for (round, point) in points.enumerate() {
        let id = |n: usize| format!("{round} {}", n % 20);
        (0..25).for_each(|n| trial.publish(&order(Order::ok(&id(n)))));
        let process = trial.start(Some(*point), 1).unwrap();
        soon(process.crash_plan.sealed()).await;
        drop(process);
        trial.run().await.unwrap();
        for n in 0..20 {
            assert_eq!(line.effects(&id(n)).await, 1, "{point:?}");
        }
    }
    assert!(trial.dead_letters().await.unwrap().is_empty());
}

/// A batch that is not full waits for more messages, up to the time set with `linger`.
pub async fn a_batch_lingers_for_what_comes<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = line.start_with(Settings { linger: Duration::from_secs(2), ..one_lane() });
    line.publish(Order::ok("a"));
    soon(line.queue.delivered(1)).await;
    line.publish(Order::new("b", &[Act::Fail, Act::Ok]).by_attempt());
    line.outcomes(3).await;
    worker.stop_once_idle(&line.queue).await;
    // Had they not run together, the failure would not have cost another run.
    assert_eq!((line.desk.runs("a"), line.desk.runs("b")), (2, 3));
    each_has_one_effect(&line, &["a", "b"].map(Order::ok)).await;
}

/// Settings that exclude each other are refused at the start, with the remedy.
pub async fn a_batch_refuses_an_order<W: World>(world: W) {
    let line = Line::new(world).await;
    let refused = line.start_with(Settings { order: DeliveryOrder::Key, ..Settings::default() }).refused().await;
    assert!(refused.contains(".batch(..)") && refused.contains(".order(..)"), "{refused}");
}

/// An error that reports a lost race against a concurrent transaction, but which the handler causes itself each time.
/// The message is run alone after its first round, as any failure, so that the others run exactly once more.
pub async fn a_race_that_a_handler_loses_by_itself_costs_one_more_round<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.lost_race.is_some(), world).await else { return };
    let mut orders = numbers(12);
    orders.insert(6, Order::new("loses", &[Act::LostRace, Act::Ok]).by_attempt());
    let worker = taken_together(&line, &orders).await;
    let outcomes = ends(&line, worker, 14).await;
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "processed").count(), 15);
    each_has_one_effect(&line, &orders).await;
    for order in numbers(12) {
        assert!(line.desk.runs(&order.id) <= 2, "{} ran {} times", order.id, line.desk.runs(&order.id));
    }
}

/// The batch handler is called once for the whole batch, then for halves of it until the one that rolls back is alone.
pub async fn a_rollback_in_a_batch_handler_harms_no_other_message<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = blocked(&line).await;
    let mut orders = numbers(6);
    orders.insert(2, Order::new("culprit", &[Act::RollbackWrite]));
    orders.iter().for_each(|order| line.publish_batched(order.clone()));
    let_go(&line, 7).await;
    let outcomes = ends(&line, worker, 7).await;
    assert_eq!((outcomes[0].as_str(), outcomes[1].as_str()), ("dead: rolled back by its handler", "processed"));
    assert_eq!((line.effects("culprit").await, line.one_dead().await.attempts), (0, 1));
    each_has_one_effect(&line, &numbers(6)).await;
}

/// Likewise for COMMIT, whether the handler looks at its result or writes behind it.
pub async fn a_commit_in_a_batch_handler_harms_no_other_message<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = blocked(&line).await;
    let mut orders = numbers(6);
    orders.insert(2, Order::new("commits", &[Act::CommitFail]));
    orders.insert(5, Order::new("writes", &[Act::CommitWrite]));
    orders.iter().for_each(|order| line.publish_batched(order.clone()));
    let_go(&line, 8).await;
    let outcomes = ends(&line, worker, 8).await;
    assert_eq!(outcomes[..2], ["dead: committed by its handler", "dead: committed by its handler"]);
    assert!(outcomes[2..].iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    // Each was committed by the run that was its own, where COMMIT is not refused.
    for culprit in ["commits", "writes"] {
        assert_eq!(line.effects(culprit).await, i64::from(!W::FEATURES.refuses_commit), "{culprit}");
    }
    assert_eq!(line.effects("behind its COMMIT").await, 0);
    each_has_one_effect(&line, &numbers(6)).await;
}

/// A batch handler is called once with the new messages, and never with copies or duplicates.
pub async fn a_batch_handler_gets_what_is_new<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_batched(Order::ok("known"));
    line.run(1).await;
    let worker = blocked(&line).await;
    for id in ["a", "known", "b", "a", "c"] {
        line.publish_batched(Order::ok(id));
    }
    let_go(&line, 6).await;
    let outcomes = ends(&line, worker, 6).await;
    assert_eq!(outcomes[..3], ["duplicate", "duplicate", "processed"]);
    let mut calls = line.desk.log();
    calls.sort();
    assert_eq!(calls, ["a b c", "after", "before", "known"]);
    each_has_one_effect(&line, &["known", "a", "b", "c"].map(Order::ok)).await;
}

/// An error of a batch handler names no message, so the batch is halved until the failing one is alone.
pub async fn a_batch_handler_that_fails_gets_halves_until_the_bad_one_is_alone<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = blocked(&line).await;
    let mut orders = numbers(7);
    orders.insert(3, Order::new("bad", &[Act::Permanent]));
    orders.iter().for_each(|order| line.publish_batched(order.clone()));
    let_go(&line, 8).await;
    let outcomes = ends(&line, worker, 8).await;
    assert_eq!((outcomes[0].as_str(), outcomes[1].as_str()), ("dead: permanent", "processed"));
    assert_eq!((line.one_dead().await.attempts, line.effects("bad").await), (1, 0));
    each_has_one_effect(&line, &numbers(7)).await;
}

const BATCHED: usize = 16;

/// A deferred trigger reports a lost race each time. That says nothing about other batches: these are as large as
/// before.
pub async fn a_race_that_is_lost_at_the_commit_by_itself_keeps_batches_concurrent<W: World>(world: W) {
    if W::FEATURES.lost_race.is_some() {
        assert_eq!(calls_after(world, "40001").await, 1);
    }
}

/// A deadlock needs another transaction, also at the commit: batches are smaller for a while.
pub async fn a_deadlock_at_the_commit_runs_batches_one_at_a_time<W: World>(world: W) {
    if W::FEATURES.lost_race.is_some() {
        assert!(calls_after(world, "40P01").await > 1);
    }
}

/// A message fails at each commit with this SQLSTATE, in a batch and alone. Returns in how many calls a batch handler
/// then gets as many messages as fit into one batch.
async fn calls_after<W: World>(world: W, code: &str) -> usize {
    let line = Line::new(world).await;
    let (lose, effects) = (line.world.name("lose"), line.world.name("effects"));
    let trigger = format!(
        "CREATE FUNCTION {lose}() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '{code}'; END $$;
         CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON {effects} DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.name = 'loses') EXECUTE FUNCTION {lose}()"
    );
    line.world.run(&trigger).await;
    let mut orders = numbers(8);
    orders.insert(4, Order::ok("loses"));
    let worker = taken_together(&line, &orders).await;
    // Besides those of `before` and `after`: eight processed, four failures and a dead letter.
    let outcomes = line.outcomes(2 + 8 + 5).await;
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "processed").count(), 10, "{outcomes:?}");
    assert_eq!(line.one_dead().await.attempts, 5);

    line.desk.go.send_replace(false);
    line.publish(Order::new("blocks", &[Act::Wait]));
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 2)).await.unwrap();
    let ids: Vec<String> = (0..BATCHED).map(|n| format!("batched {n}")).collect();
    ids.iter().for_each(|id| line.publish_batched(Order::ok(id)));
    // The worker takes deliveries one by one, so it holds all those before the last one handed out.
    line.publish(Order::ok("last"));
    soon(line.queue.delivered(11 + 2 + BATCHED)).await;
    line.desk.go.send_replace(true);
    line.outcomes(15 + 2 + BATCHED).await;
    worker.stop().await;
    let calls: Vec<String> = line.desk.log().into_iter().filter(|call| call.starts_with("batched ")).collect();
    assert_eq!(calls.join(" ").split(' ').count(), 2 * BATCHED);
    calls.len()
}
