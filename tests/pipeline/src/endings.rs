//! Handlers that end their transaction or are cut off: the transaction's result decides, and no other message is
//! affected.

use std::time::Duration;

use idem_core::store::Transactions;
use idem_core::{HasConnection, Key, Reason};

use idem_conformance::store::World;
use idem_conformance::{soon, until};

use super::line::Line;
use super::orders::{Act, Order};
use super::running::Running;
use super::settings::Settings;

/// Short enough for a test that waits for it, long enough for one that does not.
fn hasty() -> Settings {
    Settings { handler_timeout: Duration::from_secs(2), ..Settings::default() }
}

/// The message of a handler that commits is dead, whatever the handler does after its COMMIT.
async fn is_dead<W: World>(line: &Line<W>, id: &str) {
    until(async || !line.dead().await.is_empty()).await;
    let dead = line.one_dead().await;
    assert_eq!((dead.reason, dead.identity.key), (Some(Reason::Committed), Key::of(id).unwrap()));
    // Where COMMIT is refused, a run in a batch came before the one that is recorded.
    assert_eq!(line.effects(id).await, i64::from(!W::FEATURES.refuses_commit));
}

/// A message whose handler commits and whose outcome is then lost is dead, and is never taken for a duplicate.
async fn cut_off<W: World>(world: W, act: Act) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[act]));
    let worker = line.start_with(hasty());
    is_dead(&line, "a").await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.outcomes(1).await.last().unwrap(), "dead: committed by its handler");
    let runs = line.desk.runs("a");
    line.publish(Order::new("a", &[act]));
    assert_eq!(line.run(2).await.last().unwrap(), "duplicate", "its claim stands");
    assert_eq!(line.desk.runs("a"), runs);
}

/// COMMIT, then the handler timeout elapses.
pub async fn a_commit_before_the_handler_timeout_is_dead<W: World>(world: W) {
    cut_off(world, Act::CommitHang).await;
}

/// COMMIT, then the connection is lost.
pub async fn a_commit_before_the_connection_is_lost_is_dead<W: World>(world: W) {
    if W::FEATURES.terminate_backend.is_some() {
        cut_off(world, Act::CommitTerminateBackend).await;
    }
}

/// COMMIT, then the connection is lost, which the handler ignores.
pub async fn a_commit_before_a_loss_that_is_ignored_is_dead<W: World>(world: W) {
    if W::FEATURES.terminate_backend.is_some() {
        cut_off(world, Act::CommitTerminateBackendOk).await;
    }
}

/// COMMIT, then the shutdown timeout elapses.
pub async fn a_commit_before_the_end_of_the_patience_is_dead<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::CommitWait]));
    let worker = line.start_with(Settings { drain: Duration::from_millis(50), ..Settings::default() });
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    worker.stop().await;
    line.desk.go.send_replace(true);
    is_dead(&line, "a").await;
    assert_eq!(line.outcomes(1).await, ["dead: committed by its handler"]);
    assert_eq!(line.queue.counts().unsettled, 0);
}

/// Publishes `order` with nine others, and runs them until the others are processed and there are `dead` dead letters.
/// Each of the others then has one effect.
async fn among_others<W: World>(line: &Line<W>, round: usize, order: Order, dead: usize) {
    let others: Vec<Order> = (0..9).map(|n| Order::ok(&format!("{round} {n}"))).collect();
    others[..5].iter().for_each(|other| line.publish(other.clone()));
    line.publish(order);
    others[5..].iter().for_each(|other| line.publish(other.clone()));
    let worker = line.start_with(Settings { concurrency: 1, linger: Duration::from_millis(300), ..hasty() });
    until(async || line.dead().await.len() >= dead && line.scheduled().await.is_empty()).await;
    soon(line.queue.idle()).await;
    until(async || line.scheduled().await.is_empty()).await;
    worker.stop().await;
    for other in &others {
        assert_eq!(line.effects(&other.id).await, 1, "{}", other.id);
    }
    assert_eq!(line.dead().await.len(), dead);
}

/// A handler commits beside others: its message is dead, and each of the others has one effect.
async fn commits_among_others<W: World>(world: W, acts: &[Act]) {
    let line = Line::new(world).await;
    for (round, act) in acts.iter().enumerate() {
        among_others(&line, round, Order::new(&format!("{act:?}"), &[*act]), round + 1).await;
        assert_eq!(line.dead().await[0].reason, Some(Reason::Committed), "{act:?}");
    }
}

/// It returns the error of its COMMIT.
pub async fn a_commit_harms_no_other_message<W: World>(world: W) {
    commits_among_others(world, &[Act::CommitFail]).await;
}

/// It ignores the result of its COMMIT.
pub async fn a_commit_that_is_not_looked_at_harms_no_other_message<W: World>(world: W) {
    commits_among_others(world, &[Act::Commit, Act::CommitBegin]).await;
}

/// It writes again: behind a COMMIT that is refused, and in a run where COMMIT is not refused. Neither write exists.
pub async fn a_write_behind_a_commit_never_exists<W: World>(world: W) {
    let line = Line::new(world).await;
    writes_behind_its_commit(&line).await;
    assert_eq!(line.effects("behind its COMMIT").await, 0);
}

/// Where the sessions may write, such a write remains, but harms no other message.
pub async fn a_write_behind_a_commit_harms_no_other_message<W: World>(world: W) {
    writes_behind_its_commit(&Line::new(world).await).await;
}

async fn writes_behind_its_commit<W: World>(line: &Line<W>) {
    among_others(line, 0, Order::new("writes", &[Act::CommitWrite]), 1).await;
    assert_eq!(line.dead().await[0].reason, Some(Reason::Committed));
}

/// Past the handler timeout.
pub async fn a_commit_that_is_cut_off_harms_no_other_message<W: World>(world: W) {
    commits_among_others(world, &[Act::CommitHang]).await;
}

/// Without a connection.
pub async fn a_commit_on_a_connection_that_is_lost_harms_no_other_message<W: World>(world: W) {
    if W::FEATURES.terminate_backend.is_some() {
        commits_among_others(world, &[Act::CommitTerminateBackend]).await;
    }
}

/// A prepared transaction keeps its claim locked until somebody ends it. It is rolled back, its message is dead, and the
/// others go on.
pub async fn a_transaction_that_its_handler_prepared_is_rolled_back<W: World>(world: W) {
    let Some(prepares) = W::FEATURES.prepares else { return };
    let line = Line::new(world).await;
    if line.world.number(prepares).await == 0 {
        return;
    }
    for (round, act) in [Act::Prepare, Act::PrepareFail, Act::PrepareHang].into_iter().enumerate() {
        let id = format!("{act:?}");
        among_others(&line, round, Order::new(&id, &[act]), round + 1).await;
        let dead = &line.dead().await[0];
        assert_eq!((dead.reason, dead.attempts, line.effects(&id).await), (Some(Reason::RolledBack), 1, 0), "{act:?}");
    }
}

/// A temporary table stays in its session, and hides a table of the same name.
pub async fn a_table_that_a_handler_leaves_hides_nothing_from_the_others<W: World>(world: W) {
    let line = Line::new(world).await;
    // Before the others in the order of a batch.
    among_others(&line, 0, Order::new("! hides", &[Act::Hide]), 0).await;
    assert_eq!(line.effects("! hides").await, 1);
}

/// A handler may check its deferred constraints before it ends.
pub async fn a_handler_checks_its_constraints_among_others<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.check_constraints.is_some(), world).await else { return };
    among_others(&line, 0, Order::new("checks", &[Act::Constraints]), 0).await;
    assert_eq!((line.effects("checks").await, line.desk.runs("checks")), (1, 1));
}

/// The database goes on with the last statement of a handler that is gone: one attempt is recorded, once the database has
/// given the statement up.
pub async fn a_statement_that_outlives_its_handler_is_recorded_once<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Stuck, Act::Fail]));
    let outcomes = line.run_with(Settings { retry: Settings::late().retry, ..hasty() }, 1).await;
    assert_eq!((outcomes, line.desk.runs("a")), (vec!["scheduled 1".to_owned()], 1));
    let row = &line.scheduled().await[0];
    assert!(row.error.contains("exceeded its timeout") || row.error.contains("interrupted"), "{:?}", row.error);
    assert_eq!((row.attempts, row.crash_count, row.lost_connections, line.effects("a").await), (1, 0, 0, 0));
}

/// A handler that has failed, and a transaction that prevents the failure from being recorded.
async fn blocked<W: World>(line: &Line<W>, settings: Settings) -> (Running, <W::Store as Transactions>::Txn) {
    line.publish(Order::new("a", &[Act::WaitFail, Act::Ok]));
    let worker = line.start_with(settings);
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    let mut block = line.store.begin(Duration::from_secs(60)).await.unwrap();
    let lock = format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", line.world.own("inbox_messages"));
    W::execute(<W::Store as HasConnection<W::Connection>>::connection(&mut block), &lock).await.unwrap();
    line.desk.go.send_replace(true);
    waits(line, true).await;
    (worker, block)
}

/// Waits until some transaction waits for another one, or until none does.
pub(super) async fn waits<W: World>(line: &Line<W>, any: bool) {
    until(async || (line.world.waiting().await != Some(0)) == any).await;
}

/// A failure that cannot be recorded at once: only the recording is retried, never the handler. The delivery is held
/// meanwhile.
pub async fn a_failure_is_recorded_again_and_the_handler_not_run_again<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent && !world.inbox(), world).await else { return };
    let (worker, block) = blocked(&line, Settings::late()).await;
    // Each try ends with a lock timeout.
    for _ in 0..3 {
        waits(&line, false).await;
        waits(&line, true).await;
    }
    assert_eq!((line.queue.counts().unsettled, line.queue.counts().redeliveries), (1, 0));
    line.store.rollback(block).await.unwrap();
    assert_eq!(line.outcomes(1).await, ["scheduled 1"]);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.desk.runs("a"), line.scheduled().await[0].attempts), (1, 1));
}

/// A drain releases the delivery.
pub async fn a_drain_releases_a_failure_that_is_not_recorded<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent && !world.inbox(), world).await else { return };
    let (worker, block) = blocked(&line, Settings::default()).await;
    worker.stop().await;
    let counts = line.queue.counts();
    assert_eq!((counts.acks, counts.ready, counts.unsettled), (0, 1, 0));
    line.store.rollback(block).await.unwrap();
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!(line.effects("a").await, 1);
}
