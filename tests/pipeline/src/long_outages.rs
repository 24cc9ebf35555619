//! Two databases and one process: while one of them is unavailable, orphaned rows of the other one run, and nothing runs
//! concurrently with them that could end the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_core::Health;
use idem_core::store::{Row, StoreError};
use tokio::sync::watch;

use idem_conformance::store::{Setup, World};
use idem_conformance::{soon, until};

use super::crashes::{crash_on, never_runs, orphan_for, schedule};
use super::faulty::Do;
use super::line::Line;
use super::neighbours::{Away, failing_orphan, has_effect, have_effects, one_process, runs_on, stop, two_databases};
use super::orders::{Act, Order};
use super::running::Running;
use super::settings::Settings;

/// A database that a test makes unavailable. Pings, looks for due rows, and claims of `unanswered` messages then get no answer.
/// Other statements do, as on connections that are open. A statement that the hook holds up waits for the test.
#[derive(Clone)]
pub(super) struct Silent {
    is_away: Arc<AtomicBool>,
    reached: watch::Sender<bool>,
    gate: watch::Sender<bool>,
    health: watch::Sender<Option<Health>>,
}

impl Silent {
    pub(super) fn new() -> Self {
        let (reached, gate) = (watch::Sender::new(false), watch::Sender::new(false));
        Self { is_away: Arc::default(), reached, gate, health: watch::Sender::new(None) }
    }

    /// Holds up the calls of this method, for this key or for each one.
    pub(super) fn hook(
        &self,
        held_up: &'static str,
        key: Option<&'static str>,
    ) -> impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static + use<> {
        let it = self.clone();
        move |method, of| {
            let fails = matches!(method, "ping" | "poll_due") || (method == "claim" && of.starts_with(b"unanswered"));
            if fails && it.is_away.load(SeqCst) {
                return Do::Fail(StoreError::ConnectionLost("no answer".into()));
            }
            if method != held_up || key.is_some_and(|key| key.as_bytes() != of) {
                return Do::Work;
            }
            it.reached.send_replace(true);
            Do::Wait(it.gate.subscribe())
        }
    }

    /// Settings by which a worker shows its health here. Its handlers may run for a short time: nothing waits for that.
    pub(super) fn shown(&self, settings: &Settings) -> Settings {
        let handler_timeout = Duration::from_secs(2);
        Settings { handler_timeout, health: Some(self.health.clone()), ..settings.clone() }
    }

    /// Waits until a statement is held up.
    pub(super) async fn reached(&self) {
        soon(self.reached.subscribe().wait_for(|reached| *reached)).await.unwrap();
    }

    /// Lets the statements go on.
    pub(super) fn open(&self) {
        self.gate.send_replace(true);
    }

    pub(super) fn fall_silent(&self) {
        self.is_away.store(true, SeqCst);
    }

    /// Makes the database unavailable, and waits until its worker knows.
    pub(super) async fn go_away(&self) {
        self.fall_silent();
        self.knows(false).await;
    }

    pub(super) fn come_back(&self) {
        self.is_away.store(false, SeqCst);
    }

    /// Waits until the worker knows whether its database is available.
    async fn knows(&self, is_available: bool) {
        let health = self.health.borrow().clone().unwrap();
        until(async || health.database() == is_available).await;
    }
}

/// Starts the worker of an orphaned row with two starts, and waits until it has the process to itself.
pub(super) async fn orphan_alone<W: World>(neighbour: &Line<W>, settings: Settings) -> Running {
    orphan_for(neighbour, 2, Duration::ZERO).await;
    let worker = neighbour.start_with(settings);
    soon(neighbour.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    worker
}

/// Waits until the row with this key is in this state.
pub(super) async fn row_becomes<W: World>(line: &Line<W>, id: &str, is_it: impl Fn(&Row) -> bool) -> Row {
    soon(async {
        loop {
            let rows = line.scheduled().await;
            let row = rows.into_iter().find(|row| row.identity.key.as_bytes() == id.as_bytes());
            if let Some(row) = row.filter(|row| is_it(row)) {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// Their statements get an answer while the orphaned row runs.
pub async fn messages_that_waited_for_their_database_run_while_no_orphan_runs<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    // With a free slot the inbox polls, and finds that the database is unavailable.
    let ids: &[&str] = if line.world.inbox() { &["a"] } else { &["a", "b"] };
    ids.iter().for_each(|id| line.publish(Order::ok(id)));
    let silent = Silent::new();
    let (concurrency, linger) = (if line.world.batch() > 1 { 1 } else { 2 }, Duration::from_millis(200));
    let hook = silent.hook(if line.world.inbox() { "start" } else { "claim" }, None);
    let worker = line.start_over(hook, Settings { concurrency, linger, ..silent.shown(&settings) });
    silent.reached().await;
    silent.go_away().await;
    let beside = orphan_alone(&neighbour, settings).await;
    silent.open();
    for id in ids {
        never_runs(&line, id).await;
    }
    runs_on(&neighbour).await;
    silent.come_back();
    have_effects(&line, ids).await;
    stop([worker, beside]).await;
}

/// The first handler of the batch runs, and the orphaned row waits for it, and for no other one.
pub async fn a_batch_calls_no_more_handlers_once_an_orphan_waits<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    line.publish(Order::new("a", &[Act::Wait]));
    line.publish(Order::ok("b"));
    let silent = Silent::new();
    let (hook, health) = (silent.hook("", None), silent.shown(&settings).health);
    let linger = Duration::from_millis(200);
    let worker = line.start_over(hook, Settings { concurrency: 1, linger, health, ..settings.clone() });
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    silent.go_away().await;
    orphan_for(&neighbour, 2, Duration::ZERO).await;
    let gate = settings.gate.clone().unwrap();
    let beside = neighbour.start_with(settings);
    until(async || gate.keeps_out_direct()).await;
    never_runs(&neighbour, "orphan").await;
    line.desk.go.send_replace(true);
    soon(neighbour.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    never_runs(&line, "b").await;
    runs_on(&neighbour).await;
    silent.come_back();
    have_effects(&line, &["a", "b"]).await;
    stop([worker, beside]).await;
}

/// Both workers share a store with one connection for handlers. The orphaned row waits for it, and the batch has it, but no permit
/// when its database is available again.
pub async fn a_batch_that_is_put_off_gives_its_connection_to_the_orphan<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        // The batch has the only writer, so the orphaned row is not found.
        return;
    }
    let line = Line::with(world, Setup { connections: Some(2), ..Setup::default() }).await;
    let (settings, silent) = (one_process(), Silent::new());
    let handler = schedule(&line, "shipping", Order::ok("orphan")).await;
    crash_on(&line, handler, 2, Duration::ZERO).await;
    let ids = ["a", "b"];
    ids.iter().for_each(|id| line.publish(Order::ok(id)));
    let linger = Duration::from_millis(200);
    let hook = silent.hook("claim", None);
    let worker = line.start_over(hook, Settings { concurrency: 1, linger, ..silent.shown(&settings) });
    silent.reached().await;
    silent.go_away().await;
    let beside = line.start_at(line.broker.queue("other"), Settings { consumer: "shipping", ..settings });
    let counted = format!("SELECT count(*) FROM {} WHERE crash_count = 3", line.world.own("inbox_messages"));
    until(async || line.world.number(&counted).await != 0).await;
    silent.come_back();
    silent.knows(true).await;
    silent.open();
    have_effects(&line, &["orphan", "a", "b"]).await;
    stop([worker, beside]).await;
}

/// An orphaned row whose database becomes unavailable before its handler begins ends its isolation and its turn. Its start is not
/// counted.
pub async fn an_orphan_that_lost_its_isolation_begins_while_no_other_one_runs<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        // The orphaned row has the only writer, so no other message finds that the database is unavailable.
        return;
    }
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    orphan_for(&line, 1, Duration::ZERO).await;
    line.desk.go.send_replace(true);
    let silent = Silent::new();
    let worker = line.start_over(silent.hook("start", Some("orphan")), silent.shown(&settings));
    silent.reached().await;
    silent.fall_silent();
    line.publish(Order::ok("unanswered"));
    silent.knows(false).await;
    let beside = orphan_alone(&neighbour, settings).await;
    silent.open();
    let snoozed = row_becomes(&line, "orphan", |row| row.locked_by.is_none()).await;
    never_runs(&line, "orphan").await;
    assert_eq!(snoozed.crash_count, 1);
    runs_on(&neighbour).await;
    silent.come_back();
    has_effect(&line, "orphan").await;
    has_effect(&line, "unanswered").await;
    stop([worker, beside]).await;
}

/// To write an outcome needs no permit. If it waited for the orphaned row, its lease could end meanwhile, and the failure would be
/// lost.
pub async fn a_failure_is_recorded_beside_an_orphan_of_another_database<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    schedule(&line, "billing", Order::new("row", &[Act::WaitFail, Act::Ok])).await;
    let away = Away::start(line, settings.clone(), "rollback");
    away.waits().await;
    away.go_away();
    let beside = orphan_alone(&neighbour, settings).await;
    away.come_back();
    row_becomes(&away.line, "row", |row| row.attempts == 1).await;
    assert_eq!((neighbour.effects("orphan").await, away.line.desk.runs("row")), (0, 1));
    runs_on(&neighbour).await;
    has_effect(&away.line, "row").await;
    stop([away.worker, beside]).await;
}

/// The fetch of the rows got no answer, and the database became unavailable. The rows are found when it is available again.
/// Beside an orphaned row, they are released, and no attempt is recorded.
pub async fn rows_whose_fetch_has_no_answer_run_while_no_orphan_runs<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    schedule(&line, "billing", Order::ok("row")).await;
    let (is_away, was_away) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let away = is_away.clone();
    let hook = move |method: &'static str, _: &[u8]| {
        if method == "row_is_fetched" && !was_away.swap(true, SeqCst) {
            away.store(true, SeqCst);
        }
        match away.load(SeqCst) {
            true => Do::Fail(StoreError::ConnectionLost("the database is away".into())),
            false => Do::Work,
        }
    };
    let worker = line.start_over(hook, settings.clone());
    row_becomes(&line, "row", |row| row.crash_count == 1).await;
    let beside = orphan_alone(&neighbour, settings).await;
    is_away.store(false, SeqCst);
    row_becomes(&line, "row", |row| row.crash_count == 0 && row.locked_by.is_none()).await;
    never_runs(&line, "row").await;
    assert_eq!(neighbour.effects("orphan").await, 0);
    runs_on(&neighbour).await;
    has_effect(&line, "row").await;
    stop([worker, beside]).await;
}

/// Another statement finds that the database is unavailable. The orphaned row is released later, and no attempt is recorded.
pub async fn an_orphan_whose_fetch_hangs_in_an_outage_stops_no_worker_of_another_database<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    orphan_for(&line, 1, Duration::ZERO).await;
    line.desk.go.send_replace(true);
    let silent = Silent::new();
    let worker = line.start_over(silent.hook("row_is_fetched", Some("orphan")), silent.shown(&settings));
    silent.reached().await;
    schedule(&neighbour, "billing", Order::ok("row")).await;
    let beside = neighbour.start_with(settings);
    never_runs(&neighbour, "row").await;
    silent.fall_silent();
    line.publish(Order::ok("unanswered"));
    has_effect(&neighbour, "row").await;
    silent.open();
    row_becomes(&line, "orphan", |row| row.locked_by.is_none() && row.crash_count == 1).await;
    silent.come_back();
    have_effects(&line, &["orphan", "unanswered"]).await;
    stop([worker, beside]).await;
}

/// The outage of another database has ended the isolation of an earlier orphaned row, so nothing was kept out for as long as the
/// outage, and the next orphaned row does not leave the process to others for as long.
pub async fn an_outage_while_an_orphan_runs_delays_no_later_orphan<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    let gate = settings.gate.clone().unwrap();
    failing_orphan(&line).await;
    let away = Away::start(line, settings.clone(), "rollback");
    away.waits().await;
    away.go_away();
    until(async || !gate.keeps_out_rows()).await;
    // Longer than a lease.
    let outage = Duration::from_secs(10);
    tokio::time::sleep(outage).await;
    away.come_back();
    has_effect(&away.line, "orphan").await;
    away.line.desk.go.send_replace(false);
    schedule(&away.line, "billing", Order::new("running", &[Act::Wait])).await;
    soon(away.line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 2)).await.unwrap();
    orphan_for(&neighbour, 1, Duration::ZERO).await;
    neighbour.desk.go.send_replace(true);
    let beside = neighbour.start_with(settings);
    let waits = until(async || gate.keeps_out_rows());
    tokio::time::timeout(outage / 2, waits).await.expect("the orphaned row waits for the running row");
    away.line.desk.go.send_replace(true);
    has_effect(&neighbour, "orphan").await;
    has_effect(&away.line, "running").await;
    stop([away.worker, beside]).await;
}
