//! Processes that crash.

use std::sync::Arc;
use std::time::Duration;

use idem_core::store::{
    ClaimState, CommitResult, Consumers, FetchFor, FetchLimit, HandlerId, Identity, InboxRows, NewRow, RowKind,
    Transactions,
};
use idem_core::{Delivery, Fingerprint, HasConnection, IsolationLock, Key, Outcome, Reason};
use uuid::Uuid;

use idem_conformance::store::{Setup, World};
use idem_conformance::{soon, until};
use idem_test::Publication;
use idem_test::harness::{Crash, Trial};

use super::desk::Desk;
use super::line::{Line, sorted};
use super::long_outages::row_becomes;
use super::orders::{Act, Order, Orders};
use super::settings::Settings;

/// A trial of the suite's handler; each process has a separate store.
pub(super) async fn trial<W: World>(world: Arc<W>, desk: Desk) -> Trial<W::Store>
where
    W::Store: HasConnection<W::Connection>,
{
    let (inbox, batch) = (world.inbox(), world.batch());
    let connect = move || {
        let world = world.clone();
        async move { world.store(Setup::default()).await }
    };
    let trial = Trial::new(connect).state(desk);
    let trial = if inbox { trial.inbox() } else { trial };
    let trial = trial.batch(batch);
    trial.handler::<Orders<W>>().await.unwrap()
}

pub(super) fn order(order: Order) -> idem_test::Publication {
    idem_test::Publication::from(order).event_type("Order")
}

/// Once, ten times, five at once, in two processes, and with a crash at each point: one effect.
pub async fn every_way_to_deliver_has_one_effect<W: World>(world: W) {
    let line = Line::new(world).await;
    let trial = trial(line.world.clone(), line.desk.clone()).await;
    for (copies, concurrency, processes) in [(1, 1, 1), (10, 1, 1), (5, 5, 1), (6, 3, 2)] {
        for crash in [None].into_iter().chain(Crash::ALL.iter().copied().map(Some)) {
            for acts in [&[Act::Ok][..], &[Act::Fail, Act::Ok]] {
                let fails = acts[0] == Act::Fail;
                // A failing message also reaches the commit points: those of the transaction that schedules it.
                let id = format!("{copies} {concurrency} {processes} {crash:?} {fails}");
                let sending = trial.deliver(order(Order::new(&id, acts))).processes(processes);
                let sending = match crash {
                    Some(crash) => sending.crash(crash),
                    None => sending,
                };
                if let Err(error) = sending.run(copies, concurrency).await {
                    panic!("{id}: {error}");
                }
                assert_eq!(line.effects(&id).await, 1, "{id}");
                assert!(line.dead().await.is_empty());
            }
        }
    }
}

/// Each run ends its process. The first run was a direct delivery, where deliveries run directly; the next four started
/// from the inbox, the last two with exclusive access to the process.
pub async fn a_message_that_kills_its_process_is_dead_as_crashed<W: World>(world: W) {
    let line = Line::new(world).await;
    let trial = trial(line.world.clone(), line.desk.clone()).await;
    trial.publish(&order(Order::ok("killer")));
    for _ in 0..if line.world.inbox() { 4 } else { 5 } {
        let process = trial.start(Some(Crash::InHandler), 4).unwrap();
        soon(process.crash_plan.sealed()).await;
        drop(process);
    }
    trial.publish(&order(Order::ok("innocent")));
    trial.run().await.unwrap();
    let dead = trial.dead_letters().await.unwrap();
    assert_eq!((dead.len(), dead[0].reason, dead[0].crash_count), (1, Some(Reason::Crashed), 4));
    let observed = trial.outcomes();
    assert!(observed.contains(&Outcome::dead(Reason::Crashed)), "{observed:?}");
    assert_eq!((line.effects("killer").await, line.effects("innocent").await), (0, 1));
}

/// No row that runs concurrently with it can be blamed, and none begins before its outcome is written.
pub async fn a_row_with_one_start_runs_alone_among_rows<W: World>(world: W) {
    // Otherwise the running message has the only writer.
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    orphan(&line, 1).await;
    // Two workers of one process: only what they share can hold the other one back.
    let gate = IsolationLock::new();
    let workers = [(); 2].map(|()| line.start_with(Settings { gate: Some(gate.clone()), ..Settings::default() }));
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    schedule(&line, "billing", Order::ok("neighbour")).await;
    never_runs(&line, "neighbour").await;
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(2).await, ["processed", "processed"]);
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!((line.effects("orphan").await, line.effects("neighbour").await), (1, 1));
}

/// One crash, as each forced deployment causes for many rows, does not stop direct deliveries.
pub async fn direct_deliveries_go_on_during_a_row_with_one_start<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.concurrent && !world.inbox(), world).await else { return };
    orphan(&line, 1).await;
    let worker = line.start();
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.publish(Order::ok("neighbour"));
    assert_eq!(line.outcomes(1).await, ["processed"]);
    assert_eq!((line.effects("orphan").await, line.effects("neighbour").await), (0, 1));
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(2).await, ["processed", "processed"]);
    worker.stop().await;
}

/// A message on which processes have died runs while nothing else does, so that no other message can be blamed: no handler,
/// and no key either.
pub async fn a_row_with_two_starts_has_the_process_to_itself<W: World>(world: W) {
    let line = Line::new(world).await;
    orphan(&line, 2).await;
    let worker = line.start();
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.publish(Order::ok("neighbour"));
    line.publish(Publication::from(Order::ok("keyless")).header("panics", "key"));
    soon(line.queue.delivered(2)).await;
    never_runs(&line, "neighbour").await;
    assert!(line.dead().await.is_empty(), "its key was computed");
    line.desk.go.send_replace(true);
    assert_eq!(sorted(line.outcomes(3).await), ["dead: no key", "processed", "processed"]);
    worker.stop().await;
    assert_eq!((line.effects("orphan").await, line.effects("neighbour").await), (1, 1));
}

/// It is not fetched, so no start is counted, and another process finds it at once.
pub async fn an_orphan_that_waits_is_left_when_the_worker_drains<W: World>(world: W) {
    let (line, gate) = (Line::new(world).await, IsolationLock::new());
    // Due only when the other message runs.
    let left = orphan_for(&line, 1, Duration::from_secs(3)).await;
    schedule(&line, "billing", Order::new("running", &[Act::Wait])).await;
    let worker = line.start_with(Settings { gate: Some(gate.clone()), ..Settings::default() });
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    if !W::FEATURES.concurrent {
        // The running message has the only writer.
        line.desk.go.send_replace(true);
        worker.stop().await;
        return;
    }
    until(async || gate.keeps_out_rows()).await;
    let stopping = tokio::spawn(worker.stop());
    until(async || !gate.keeps_out_rows()).await;
    let row = row_becomes(&line, "orphan", |_| true).await;
    assert_eq!((row.crash_count, row.locked_by, line.desk.runs("orphan")), (1, left, 0));
    line.desk.go.send_replace(true);
    stopping.await.unwrap();
}

/// There is no signal that it will not start. A message that is not held back has started by then.
pub(super) async fn never_runs<W: World>(line: &Line<W>, id: &str) {
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(line.desk.runs(id), 0);
}

/// A row `orphan` that waits in its handler, with `starts` starts by processes that left no outcome.
async fn orphan<W: World>(line: &Line<W>, starts: u32) {
    orphan_for(line, starts, Duration::ZERO).await;
}

/// Like [`orphan`], with a lease. Returns the token of the last process.
pub(super) async fn orphan_for<W: World>(line: &Line<W>, starts: u32, lease: Duration) -> Option<Uuid> {
    let handler = schedule(line, "billing", Order::new("orphan", &[Act::Wait])).await;
    crash_on(line, handler, starts, lease).await
}

/// Fetches the only row of a handler as often as processes that left no outcome. Returns the token of the last one.
pub(super) async fn crash_on<W: World>(
    line: &Line<W>,
    handler: HandlerId,
    starts: u32,
    lease: Duration,
) -> Option<Uuid> {
    let fetch = async |kind| {
        let (handlers, token) = ([FetchFor::new(handler, lease)], Uuid::new_v4());
        let mut rows = line.store.fetch(&handlers, FetchLimit::rows(kind, 1), token).await.unwrap().rows;
        assert_eq!(rows.len(), 1);
        rows.remove(0)
    };
    let mut row = fetch(RowKind::Ordinary).await;
    for before in 1..starts {
        row = fetch(if before == 1 { RowKind::Orphan } else { RowKind::Alone }).await;
    }
    row.locked_by
}

/// A process ends while it runs a row: the row is found again after its lease, and runs once.
pub async fn a_crash_while_a_row_runs_has_one_effect<W: World>(world: W) {
    let line = Line::new(world).await;
    let trial = trial(line.world.clone(), line.desk.clone()).await;
    for point in [Crash::InHandler, Crash::BeforeCommit, Crash::AfterCommit] {
        let id = format!("{point:?}");
        // Only the row exists, so that its run is the first to reach the point.
        schedule(&line, "trial", Order::ok(&id)).await;
        let process = trial.start(Some(point), 1).unwrap();
        soon(process.crash_plan.sealed()).await;
        drop(process);
        trial.run().await.unwrap();
        assert_eq!(line.effects(&id).await, 1, "{id}");
        assert!(trial.dead_letters().await.unwrap().is_empty());
    }
}

/// Stores a scheduled message that is due now, as a worker would.
pub(super) async fn schedule<W: World>(line: &Line<W>, consumer: &str, order: Order) -> HandlerId {
    let handler = line.store.register(consumer, &["", "orders"]).await.unwrap()[1];
    let delivery = Delivery::new("orders", serde_json::to_vec(&order).unwrap());
    schedule_delivery(line, handler, &order.id, delivery).await;
    handler
}

/// Like [`schedule`], for any delivery.
pub(super) async fn schedule_delivery<W: World>(line: &Line<W>, handler: HandlerId, key: &str, delivery: Delivery) {
    schedule_later(line, handler, key, delivery, Duration::ZERO).await;
}

/// Like [`schedule_delivery`], for a message that is due later.
pub(super) async fn schedule_later<W: World>(
    line: &Line<W>,
    handler: HandlerId,
    key: &str,
    delivery: Delivery,
    due: Duration,
) {
    let fingerprint = Fingerprint::of(delivery.payload());
    let identity = Identity { handler, key: Key::of(key).unwrap(), fingerprint };
    let mut txn = line.store.begin(Duration::from_secs(30)).await.unwrap();
    line.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await.unwrap();
    let row = NewRow::new(&identity, &delivery, Ok(due));
    line.store.insert(&mut txn, &[row]).await.unwrap();
    assert!(matches!(line.store.commit(txn).await, CommitResult::Done));
}
