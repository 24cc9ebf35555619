//! Two databases and one process: while one database is away, workers of the other one go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_core::IsolationLock;
use idem_core::store::StoreError;

use idem_conformance::store::World;
use idem_conformance::{soon, until};

use super::crashes::{crash_on, never_runs, orphan_for, schedule};
use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order};
use super::running::Running;
use super::settings::Settings;

/// A database that a test makes unavailable, and its worker.
pub(super) struct Away<W: World> {
    pub(super) line: Line<W>,
    is_away: Arc<AtomicBool>,
    pub(super) worker: Running,
}

impl<W: World> Away<W> {
    /// Starts a worker. While the database is away, each call fails for which the test can decide that, except `works`.
    pub(super) fn start(line: Line<W>, settings: Settings, works: &'static str) -> Self {
        let is_away = Arc::new(AtomicBool::new(false));
        let fails = is_away.clone();
        let hook = move |method: &'static str, _: &[u8]| match fails.load(SeqCst) && method != works {
            true => Do::Fail(StoreError::ConnectionLost("the database is away".into())),
            false => Do::Work,
        };
        let worker = line.start_over(hook, settings);
        Self { line, is_away, worker }
    }

    /// Waits until one handler waits.
    pub(super) async fn waits(&self) {
        soon(self.line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    }

    /// Makes the database unavailable, and then lets the handlers go on.
    pub(super) fn go_away(&self) {
        self.is_away.store(true, SeqCst);
        self.line.desk.go.send_replace(true);
    }

    pub(super) fn come_back(&self) {
        self.is_away.store(false, SeqCst);
    }
}

/// The settings of the workers of one process.
pub(super) fn one_process() -> Settings {
    Settings { gate: Some(IsolationLock::new()), ..Settings::default() }
}

/// Two databases, and the settings of workers of one process.
pub(super) async fn two_databases<W: World>(world: W) -> Option<(Line<W>, Line<W>, Settings)> {
    let other = world.another().await?;
    Some((Line::new(world).await, Line::new(other).await, one_process()))
}

pub(super) async fn stop(workers: [Running; 2]) {
    for worker in workers {
        worker.stop().await;
    }
}

/// An orphaned row with two starts that waits in its handler, and fails then.
pub(super) async fn failing_orphan<W: World>(line: &Line<W>) {
    let handler = schedule(line, "billing", Order::new("orphan", &[Act::WaitFail, Act::Ok])).await;
    crash_on(line, handler, 2, Duration::ZERO).await;
}

pub(super) async fn has_effect<W: World>(line: &Line<W>, id: &str) {
    until(async || line.effects(id).await != 0).await;
}

pub(super) async fn have_effects<W: World>(line: &Line<W>, ids: &[&str]) {
    for id in ids {
        has_effect(line, id).await;
    }
}

/// Lets the orphaned row of this database go on, and waits for its effect.
pub(super) async fn runs_on<W: World>(neighbour: &Line<W>) {
    neighbour.desk.go.send_replace(true);
    has_effect(neighbour, "orphan").await;
}

/// Publishes messages until one does not start, because an orphaned row waits. Returns its id.
async fn held_back<W: World>(line: &Line<W>) -> String {
    let mut n = 0;
    loop {
        let id = format!("neighbour {n}");
        line.publish(Order::ok(&id));
        // There is no signal that it will not start.
        tokio::time::sleep(Duration::from_millis(300)).await;
        if line.desk.runs(&id) == 0 {
            return id;
        }
        n += 1;
    }
}

/// The orphaned row runs. The other worker goes on as soon as it is known that its outcome cannot be written.
pub async fn an_orphan_whose_database_is_away_stops_no_worker_of_another_one<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    failing_orphan(&line).await;
    // Its failure cannot be recorded before the database is back.
    let away = Away::start(line, settings.clone(), "rollback");
    away.waits().await;
    let beside = neighbour.start_with(settings);
    neighbour.publish(Order::ok("neighbour"));
    never_runs(&neighbour, "neighbour").await;
    away.go_away();
    has_effect(&neighbour, "neighbour").await;
    away.come_back();
    has_effect(&away.line, "orphan").await;
    stop([away.worker, beside]).await;
}

/// The other worker has an orphaned row as well, which waits for its turn until the first one has run. Neither it nor the other
/// rows wait until its outcome is written.
pub async fn an_orphan_whose_database_is_away_stops_no_rows_of_another_one<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    failing_orphan(&line).await;
    orphan_for(&neighbour, 1, Duration::ZERO).await;
    neighbour.desk.go.send_replace(true);
    schedule(&neighbour, "billing", Order::ok("row")).await;
    let away = Away::start(line, settings.clone(), "rollback");
    away.waits().await;
    let beside = neighbour.start_with(settings);
    never_runs(&neighbour, "row").await;
    away.go_away();
    has_effect(&neighbour, "row").await;
    has_effect(&neighbour, "orphan").await;
    away.come_back();
    has_effect(&away.line, "orphan").await;
    stop([away.worker, beside]).await;
}

/// The orphaned row waits for a run of its own database, whose end nobody knows before the database is back. Until then the
/// orphaned row is given up, and the other worker goes on.
pub async fn an_orphan_waits_for_no_run_whose_database_is_away<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        // The running message has the only writer.
        return;
    }
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    let hour = Duration::from_secs(3600);
    orphan_for(&line, 1, hour).await;
    let id = line.scheduled().await[0].id;
    line.publish(Order::new("cut off", &[Act::WaitFail, Act::Ok]));
    let away = Away::start(line, settings.clone(), "");
    away.waits().await;
    // Due only now that the other message runs.
    let (table, due) = (away.line.world.own("inbox_messages"), W::due_earlier(hour));
    away.line.world.run(&format!("UPDATE {table} SET {due}, crash_count = 2 WHERE id = {id}")).await;
    let beside = neighbour.start_with(settings);
    let held = held_back(&neighbour).await;
    away.go_away();
    has_effect(&neighbour, &held).await;
    assert_eq!(away.line.desk.runs("orphan"), 0);
    away.come_back();
    has_effect(&away.line, "orphan").await;
    has_effect(&away.line, "cut off").await;
    assert_eq!(away.line.desk.runs("orphan"), 1);
    stop([away.worker, beside]).await;
}

/// The orphaned row waits for a run of the other database, and runs as soon as no handler does. The end of that run is known later,
/// when its database is back.
pub async fn an_orphan_waits_for_no_run_of_another_database_that_is_away<W: World>(world: W) {
    let Some((line, neighbour, settings)) = two_databases(world).await else { return };
    line.publish(Order::new("cut off", &[Act::WaitFail, Act::Ok]));
    let away = Away::start(line, settings.clone(), "");
    away.waits().await;
    orphan_for(&neighbour, 2, Duration::ZERO).await;
    neighbour.desk.go.send_replace(true);
    let beside = neighbour.start_with(settings);
    let held = held_back(&neighbour).await;
    away.go_away();
    has_effect(&neighbour, "orphan").await;
    has_effect(&neighbour, &held).await;
    away.come_back();
    has_effect(&away.line, "cut off").await;
    stop([away.worker, beside]).await;
}
